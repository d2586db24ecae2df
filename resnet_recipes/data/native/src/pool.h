// Threads that fill the rows of several batches, the oldest batch first; no batch waits for another to end. They never
// need the interpreter: a Python thread waits for it whenever the main thread runs Python.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "resize.h"
#include "workspace.h"

// Shrink one row's image into `work.shrunk` in the calling thread, to the size that `work.shrinker` has, or by
// `row.longest`.
Status shrink(Row &row, Workspace &work);

// Fill one row in the calling thread.
Status fill(Row &row, Workspace &work, const Instructions &instructions);

class Pool {
  public:
    // Start the threads; throws std::system_error if that fails.
    Pool(int threads, const Instructions &instructions);
    // Drop the rows not yet begun and wait for those being written.
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // Fill the rows, which remain the caller's and must outlive the batch; return its ticket, a positive number. The
    // system fetches their files meanwhile, so that a thread seldom waits for the disk.
    int64_t submit(Row *rows, int64_t count);

    // Return whether all rows of the batch are done, after at most this many seconds. A finished batch is forgotten;
    // only one thread may wait for it.
    bool wait(int64_t ticket, double seconds);

  private:
    struct Batch {
        Row *rows;
        int64_t count, next, done;
    };

    int64_t enqueue(Row *rows, int64_t count);
    void work();
    Row *take(std::unique_lock<std::mutex> &lock, int64_t &ticket);
    void stop();

    const Instructions &instructions_;
    std::mutex mutex_;
    std::condition_variable rows_, batches_;     // rows are waiting; a batch is done
    std::map<int64_t, Batch> by_ticket_;
    std::deque<int64_t> waiting_;                // tickets of batches with rows not yet begun
    int64_t last_ticket_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};
