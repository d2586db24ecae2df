// Threads that take the rows of several batches, the oldest batch first; no batch waits for another to end.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "resize.h"

class Pool {
  public:
    // Start the threads; throws std::system_error where that is not possible.
    Pool(int threads, const Instructions &instructions);
    // Cancel everything and wait for the rows that are being written.
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // Fill the rows, which stay the caller's and must outlive the batch; return its ticket, a positive number. Has the
    // system fetch their files meanwhile, so that a thread seldom waits for a disk.
    int64_t submit(Row *rows, int64_t count);

    // Return whether all rows of the batch are done, after this many seconds at most. A finished batch is forgotten;
    // one thread may wait for it.
    bool wait(int64_t ticket, double seconds);

    // Let no further row of the batch begin; it still has to be waited for.
    void cancel(int64_t ticket);

  private:
    struct Batch {
        Row *rows;
        int64_t count, next, done;
    };

    int64_t enqueue(Row *rows, int64_t count);
    void work();
    Row *take(std::unique_lock<std::mutex> &lock, int64_t &ticket);
    void drop_rest(Batch &batch);
    void stop();

    const Instructions &instructions_;
    std::mutex mutex_;
    std::condition_variable rows_, batches_;     // there are rows to take; a batch is whole
    std::map<int64_t, Batch> by_ticket_;
    std::deque<int64_t> waiting_;                // tickets of batches with rows that nobody has taken
    int64_t last_ticket_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};
