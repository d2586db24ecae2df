"""A remote table can list any number of images."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from resnet_recipes.data.remote import contents
from resnet_recipes.data.remote.base import RemoteFile, Store


class TableStore(Store):
    table = "path,label,split\n" + "".join(
        f"{number}.png,x,{'val' if number % 9 == 0 else 'train'}\n" for number in range(3000)
    )

    def describe(self, name: str) -> RemoteFile:
        return RemoteFile(name, 1, "1")

    def read(self, remote: RemoteFile, start: int, end: int) -> bytes:
        return self.table.encode()


class CountingThreadPool(ThreadPoolExecutor):
    """Counts tasks that have no result yet."""

    waiting = most = 0
    counting = threading.Lock()

    def submit(self, *task: object) -> Future:
        future = super().submit(*task)
        with self.counting:
            CountingThreadPool.waiting += 1
            CountingThreadPool.most = max(CountingThreadPool.most, CountingThreadPool.waiting)
        future.add_done_callback(self._end)
        return future

    def _end(self, _: Future) -> None:
        with self.counting:
            CountingThreadPool.waiting -= 1


def test_at_most_1000_sizes_are_requested_at_once(monkeypatch):
    monkeypatch.setattr(contents, "ThreadPoolExecutor", CountingThreadPool)
    head = RemoteFile("labels.csv", len(TableStore.table), "1")
    content = contents.list_contents(TableStore("http://shelf"), (head,), "labels.csv")
    assert [image.name for image in content.images] == [f"{number}.png" for number in range(3000)]
    assert CountingThreadPool.most <= 1000
