// Threads that fill the rows of several batches, the oldest batch first; no batch waits for another to end. They
// never need the interpreter, whereas a Python thread waits whenever the main thread runs Python.
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

// Shrink one row's image into `work.shrunk` in the calling thread, to the size of `work.shrinker`, or by
// `row.longest`.
Status shrink(Row &row, Workspace &work);

// Fill one row in the calling thread.
Status fill(Row &row, Workspace &work, const Instructions &instructions);

class Pool {
  public:
    // Start the threads; throws std::system_error if that fails.
    Pool(int threads, const Instructions &instructions);
    // Drop the rows that have not started and wait for rows in progress.
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // Fill the rows, which the caller owns and which must outlive the batch; return the ticket of the batch, a
    // positive number. The system prefetches their files, so that threads seldom wait for the disk.
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
    std::deque<int64_t> waiting_;                // tickets of batches with rows that have not started
    int64_t last_ticket_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};
