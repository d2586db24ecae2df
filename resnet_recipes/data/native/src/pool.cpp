#include "pool.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <pthread.h>

#include "augment.h"
#include "geometry.h"
#include "jpeg.h"
#include "memory.h"
#include "raw.h"
#include "source.h"

namespace {

// The caller's threads receive signals, because Python handlers run there.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        for (int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) {
            sigdelset(&all, fault);
        }
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

// The caller may read a status while a thread writes it.
void set_status(Row &row, Status status) { __atomic_store_n(&row.status, status, __ATOMIC_RELEASE); }

// Use the half-size level if it has enough pixels for the crop.
bool use_half_size_level(Row &row) {
    if (!row.small.data || row.full_size || row.geometry == CENTER) {
        return false;
    }
    Cut cut = cut_of(row, row.height, row.width);
    if (!cut.fits(row) || std::min(cut.box.width, cut.box.height) < 2 * row.output_size) {
        return false;
    }
    double down = static_cast<double>(row.small.height) / row.height;
    double across = static_cast<double>(row.small.width) / row.width;
    Box &box = row.box = {cut.box.left * across, cut.box.top * down, cut.box.width * across, cut.box.height * down};
    box.width = std::min(box.width, row.small.width - box.left);
    box.height = std::min(box.height, row.small.height - box.top);
    row.geometry = BOX;
    row.data = row.small.data;
    row.length = row.small.length;
    row.height = row.small.height;
    row.width = row.small.width;
    row.raw = row.small.raw;
    row.crc = row.small.crc;
    row.checked = true;
    return true;
}

// Point `bytes` to the row's shrunk image as raw pixels: from memory, or decoded now and stored.
Status read_shrunk(Row &row, Workspace &work, Bytes &bytes, bool &recalled) {
    recalled = recall(row, bytes);
    if (!recalled) {
        if (Status status = shrink(row, work); status != DONE) {
            return status;
        }
        bytes = {work.shrunk.data(), work.shrunk.size()};
        row.height = work.shrinker.height;
        row.width = work.shrinker.width;
        keep(row, bytes);
    }
    row.raw = true;
    return DONE;
}

}  // namespace

Status shrink(Row &row, Workspace &work) {
    Bytes bytes{};
    if (Status status = read_source(row, work.file, bytes); status != DONE) {
        return status;
    }
    return row.raw ? shrink_raw(bytes, row, work) : shrink_jpeg(bytes, row, work);
}

Status fill(Row &row, Workspace &work, const Instructions &instructions) {
    try {
        Bytes bytes{};
        Row asked = row;
        bool recalled = false;
        Status status =
            row.longest ? read_shrunk(row, work, bytes, recalled) : read_source(row, work.file, bytes);
        if (status != DONE) {
            return status;
        }
        if (row.geometry == WHOLE) {
            std::memcpy(row.pixels, bytes.data, bytes.size);
        } else {
            status =
                row.raw ? resize_raw(bytes, row, work, instructions) : decode_jpeg(bytes, row, work, instructions);
        }
        if (recalled && !is_kept(asked)) {      // its memory was freed meanwhile
            row = asked;
            return fill(row, work, instructions);
        }
        if (status == DONE) {
            augment(row, work.augmented);
        }
        return status;
    } catch (const std::bad_alloc &) {
        row.error = ENOMEM;
        return UNREADABLE;
    }
}

Pool::Pool(int threads, const Instructions &instructions) : instructions_(instructions) {
    SignalsBlocked blocked;
    threads_.reserve(threads);
    try {
        for (int i = 0; i < threads; i++) {
            threads_.emplace_back(&Pool::work, this);
        }
    } catch (...) {
        stop();
        throw;
    }
}

Pool::~Pool() { stop(); }

int64_t Pool::submit(Row *rows, int64_t count) {
    int64_t ticket = enqueue(rows, count);
    for (int64_t i = 0; i < count; i++) {       // after waking the threads, which start in the meantime
        read_ahead(rows[i]);
    }
    return ticket;
}

int64_t Pool::enqueue(Row *rows, int64_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < count; i++) {
        set_status(rows[i], WAITING);
        rows[i].error = 0;
    }
    int64_t ticket = ++last_ticket_;
    by_ticket_[ticket] = {rows, count, 0, 0};
    if (count > 0) {
        waiting_.push_back(ticket);
        rows_.notify_all();
    }
    return ticket;
}

bool Pool::wait(int64_t ticket, double seconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto found = by_ticket_.find(ticket);
    if (found == by_ticket_.end()) {
        return true;
    }
    const Batch &batch = found->second;
    auto has_all_rows = [&batch] { return batch.done == batch.count; };
    bool is_done = batches_.wait_for(lock, std::chrono::duration<double>(seconds), has_all_rows);
    if (is_done) {
        by_ticket_.erase(found);
    }
    return is_done;
}

void Pool::work() {
    pthread_setname_np(pthread_self(), "decode");
    Workspace work;
    std::unique_lock<std::mutex> lock(mutex_);
    int64_t ticket = 0;
    while (Row *row = take(lock, ticket)) {
        lock.unlock();
        Row small = *row;                       // the request itself must not change
        Status status = fill(use_half_size_level(small) ? small : *row, work, instructions_);
        work.trim();
        set_status(*row, status);
        lock.lock();
        Batch &batch = by_ticket_[ticket];
        if (++batch.done == batch.count) {
            batches_.notify_all();
        }
    }
}

// Wait for a row and mark it as running; null once the pool is stopping.
Row *Pool::take(std::unique_lock<std::mutex> &lock, int64_t &ticket) {
    rows_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) {
        return nullptr;
    }
    ticket = waiting_.front();
    Batch &batch = by_ticket_[ticket];
    Row *row = &batch.rows[batch.next++];
    if (batch.next == batch.count) {
        waiting_.pop_front();
    }
    set_status(*row, RUNNING);
    return row;
}

void Pool::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        for (int64_t ticket : waiting_) {
            Batch &batch = by_ticket_[ticket];
            for (; batch.next < batch.count; batch.next++, batch.done++) {
                set_status(batch.rows[batch.next], CANCELLED);
            }
        }
        waiting_.clear();
    }
    rows_.notify_all();
    batches_.notify_all();
    for (std::thread &thread : threads_) {
        thread.join();
    }
}
