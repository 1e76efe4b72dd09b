#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "instance/instance.h"
#include "sim/ids.h"
#include "sim/ring.h"
#include "sim/time.h"
#include "workload/request_table.h"

namespace spillway::instance {

/// A request in the engine's queue, with its progress before a preemption.
struct Waiting {
  sim::RequestId id;
  std::int32_t emitted = 0;
  std::int64_t rank = 0;
  sim::Time last_token = sim::kUnset;
  std::int32_t lost_tokens = -1;  ///< tokens in memory when it was preempted; −1: it was not
  std::int32_t draft_steps = 0;   ///< as in Slot
  bool resumes = false;           ///< as in Slot
  Leg leg = Leg::whole;           ///< decode: it has yet to take blocks for its prompt

  bool has_returned() const { return lost_tokens >= 0; }
};

/// The engine's queue: in order of entry, preempted requests in front; or by (rank, arrival, name).
class WaitingQueue {
 public:
  WaitingQueue(bool sorts, const workload::RequestTable& requests)
      : sorts_(sorts), requests_(requests) {}

  void push(const Waiting& entry) {
    tokens_ += tokens_of(entry);
    sorts_ ? push_sorted(entry) : fifo_.push_back(entry);
  }
  /// Requeues a preempted request.
  void push_front(const Waiting& entry) {
    tokens_ += tokens_of(entry);
    sorts_ ? push_sorted(entry) : fifo_.push_front(entry);
  }
  /// Precondition of `head` and `pop`: not empty.
  const Waiting& head() const { return sorts_ ? heap_.front() : fifo_.front(); }
  [[gnu::always_inline]] void pop() {
    tokens_ -= tokens_of(head());
    if (!sorts_) return fifo_.pop_front();
    std::pop_heap(heap_.begin(), heap_.end(), Later{requests_});
    heap_.pop_back();
  }

  /// Removes a request from any position; unset if it is not in the queue.
  std::optional<Waiting> remove(sim::RequestId id) {
    for (std::size_t i = 0; i < size(); ++i) {
      const Waiting entry = (*this)[i];
      if (entry.id != id) continue;
      tokens_ -= tokens_of(entry);
      if (sorts_) {
        heap_[i] = heap_.back();
        heap_.pop_back();
        std::make_heap(heap_.begin(), heap_.end(), Later{requests_});
      } else {
        fifo_.erase(i);
      }
      return entry;
    }
    return std::nullopt;
  }

  /// Sorts a queue in order of entry anew: by (`key_of` an entry, arrival, name), lowest first.
  template <class KeyOf>
  void sort(const KeyOf& key_of) {
    struct Keyed {
      std::int64_t key;
      Waiting entry;
    };
    std::vector<Keyed> keyed;
    keyed.reserve(fifo_.size());
    for (std::size_t i = 0; i < fifo_.size(); ++i) keyed.push_back({key_of(fifo_[i]), fifo_[i]});
    const Later is_later{requests_};
    std::sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
      return a.key != b.key ? a.key < b.key : is_later.by_arrival(b.entry, a.entry);
    });
    for (std::size_t i = 0; i < keyed.size(); ++i) fifo_[i] = keyed[i].entry;
  }

  /// A request of the queue, preempted during a step, has emitted a token in it.
  void emitted(sim::RequestId id, std::int32_t tokens, std::int32_t draft_steps, sim::Time at) {
    for (std::size_t i = 0; i < size(); ++i) {
      Waiting& entry = sorts_ ? heap_[i] : fifo_[i];
      if (entry.id != id) continue;
      tokens_ += tokens - entry.emitted;
      entry.emitted = tokens;
      entry.draft_steps = draft_steps;
      entry.last_token = at;
      return;
    }
  }

  /// A request of the queue has emitted tokens in another instance.
  void resume(sim::RequestId id, std::int32_t tokens, sim::Time at) {
    for (std::size_t i = size(); i-- > 0;) {
      Waiting& entry = sorts_ ? heap_[i] : fifo_[i];
      if (entry.id != id) continue;
      tokens_ += tokens;
      entry.emitted = tokens;
      entry.last_token = at;
      entry.resumes = true;
      return;
    }
  }

  bool has(sim::RequestId id) const {
    for (std::size_t i = 0; i < size(); ++i) {
      if ((*this)[i].id == id) return true;
    }
    return false;
  }
  bool empty() const { return size() == 0; }
  std::size_t size() const { return sorts_ ? heap_.size() : fifo_.size(); }
  /// Number of tokens of the prompts, and of output before preemptions.
  std::int64_t tokens() const { return tokens_; }
  /// The requests in no particular order.
  const Waiting& operator[](std::size_t i) const { return sorts_ ? heap_[i] : fifo_[i]; }

 private:
  struct Later {
    const workload::RequestTable& requests;
    bool operator()(const Waiting& a, const Waiting& b) const {
      return a.rank != b.rank ? a.rank > b.rank : by_arrival(a, b);
    }
    bool by_arrival(const Waiting& a, const Waiting& b) const {
      const sim::Time at_a = requests.arrival(a.id);
      const sim::Time at_b = requests.arrival(b.id);
      return at_a != at_b ? at_a > at_b : requests.name_before(b.id, a.id);
    }
  };

  std::int64_t tokens_of(const Waiting& entry) const {
    return std::int64_t{requests_.input_tokens(entry.id)} + entry.emitted;
  }
  void push_sorted(const Waiting& entry) {
    heap_.push_back(entry);
    std::push_heap(heap_.begin(), heap_.end(), Later{requests_});
  }

  bool sorts_;
  const workload::RequestTable& requests_;
  std::int64_t tokens_ = 0;
  sim::Ring<Waiting> fifo_;  // one of the two is in use
  std::vector<Waiting> heap_;
};

}  // namespace spillway::instance
