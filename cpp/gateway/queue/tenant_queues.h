#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gateway/queue/queue.h"
#include "sim/ids.h"
#include "sim/linked_list.h"
#include "sim/ring.h"
#include "sim/time.h"

namespace spillway::gateway {

/// The requests waiting for a permit, one flow per tenant.
class TenantQueues {
 public:
  struct Entry {
    sim::RequestId request;
    std::uint64_t serial = 0;  ///< order of entry over all flows, from 1
    sim::Time entered{0};
    sim::Time deadline = sim::kForever;  ///< the order of a flow, unless that is the order of entry
    sim::Time timeout = sim::kUnset;     ///< its own; unset: that of the queue
    std::int64_t priority = 0;
    double cost = 0;  ///< immediate charge of its dispatch
  };
  /// A request that left its queue without being dispatched.
  struct Removed {
    sim::TenantId flow;
    sim::RequestId request;
  };

  /// `has_own_timeouts`: whether entries may have timeouts of their own.
  TenantQueues(std::size_t num_tenants, const Queue& config, bool has_own_timeouts);
  /// Time-outs and target of controlled delay have changed, also for those that wait.
  void change(const Queue& to, sim::Time now);
  /// Whether any instance is ready, by which the time-out is chosen.
  void set_servers(bool has_servers, sim::Time now);

  /// Whether entries are ordered by their deadlines, which the caller states.
  bool needs_deadlines() const { return ordering_ == Ordering::slo_deadline; }
  /// The same of predicted outputs, which the caller states as if they were deadlines.
  bool needs_outputs() const { return ordering_ == Ordering::shortest_output; }
  /// Whether the ordering of the queues puts the head of `one` before that of `other`.
  /// Precondition: neither is empty.
  bool is_before(sim::TenantId one, sim::TenantId other) const {
    const Entry& a = head(one);
    const Entry& b = head(other);
    if (a.deadline != b.deadline) return a.deadline < b.deadline;
    return takes_newest_ ? a.serial > b.serial : a.serial < b.serial;
  }
  void push(sim::TenantId flow, const Entry& entry);
  /// Precondition of `head` and `pop`: the flow is not empty.
  const Entry& head(sim::TenantId flow) const {
    const Flow& queue = flows_[flow.index()];
    return queue[head_of(queue)];
  }
  sim::RequestId pop(sim::TenantId flow);

  std::size_t num_flows() const { return flows_.size(); }
  std::size_t length(sim::TenantId flow) const { return flows_[flow.index()].size(); }
  std::size_t size() const { return size_; }
  /// The flows that are not empty, in no particular order.
  std::span<const sim::TenantId> backlogged() const { return backlogged_; }

  // ---- removals ----------------------------------------------------------------------------

  /// Makes room in a full flow for a request of `priority`; unset if that request is rejected
  /// instead, as always if the flow is empty (a maximum of 0).
  std::optional<Removed> make_room(sim::TenantId flow, std::int64_t priority);
  /// Removes the least important request of all flows, the newest of equals; unset if none has a
  /// priority below `priority`.
  std::optional<Removed> take_least(std::int64_t priority);
  /// Time of the next time-out; kForever: none.
  sim::Time next_timeout();
  /// Removes a request that has timed out by `now`, the longest waiting first.
  std::optional<Removed> take_expired(sim::Time now);
  /// Removes a request from the flow. Precondition: it waits there.
  Removed withdraw(sim::TenantId flow, sim::RequestId request);
  /// Whether controlled delay drops the head of the flow at its turn. To be called once per head.
  bool is_too_late(sim::TenantId flow, sim::Time now) {
    return target_ != sim::kForever && judge_delay(now - head(flow).entered, now);
  }

 private:
  using Flow = sim::LinkedList<Entry>;
  void set_times(const Queue& config);
  // Sets the time-outs of those that wait.
  void time_anew(sim::Time now);
  // Until when an entry waits at most.
  sim::Time expiry_of(const Entry& entry) const {
    if (sim::is_set(entry.timeout)) return entry.entered + entry.timeout;
    if (timeout_ == sim::kForever) return sim::kForever;
    return std::max(entry.entered, counted_from_) + timeout_;
  }
  static Flow::Handle insert(Flow& flow, const Entry& entry);
  Flow::Handle insert_by_deadline(Flow& flow, Entry entry, sim::Time expiry);
  void order_again(Flow& flow);
  /// The place of an entry, valid until it is removed.
  struct Waiting {
    sim::TenantId flow;
    Flow::Handle at;
    std::uint64_t serial;
    sim::Time until;
    // Of two, the one that expires later; of equals, the one that has waited shorter.
    friend bool operator<(const Waiting& one, const Waiting& other) {
      return one.until != other.until ? one.until > other.until : one.serial > other.serial;
    }
  };
  // The one that expires first; null: none.
  const Waiting* first_to_expire();
  // The same; `first`: of those with the queue's timeout.
  [[gnu::noinline]] const Waiting* first_of_both(const Waiting* first);

  Flow::Handle head_of(const Flow& flow) const {
    return takes_newest_ ? flow.back() : flow.front();
  }
  struct Place {
    sim::TenantId flow;
    Flow::Handle handle;
  };
  const Entry& at(const Place& place) const { return flows_[place.flow.index()][place.handle]; }
  // Whether `one` yields before `other`.
  static bool is_less(const Entry& one, const Entry& other) {
    if (one.priority != other.priority) return one.priority < other.priority;
    return one.serial > other.serial;
  }
  static Flow::Handle least_of(const Flow& flow);
  bool judge_delay(sim::Time waited, sim::Time now);
  sim::RequestId remove(sim::TenantId flow, Flow::Handle at);
  bool is_gone(const Waiting& waiting) const {
    return flows_[waiting.flow.index()][waiting.at].serial != waiting.serial;
  }

  Ordering ordering_;
  Drop drop_;
  sim::Time timeout_ = sim::kForever;  // in force
  sim::Time timeout_with_servers_ = sim::kForever;
  sim::Time timeout_without_servers_ = sim::kForever;
  bool has_two_timeouts_ = false;
  bool has_servers_ = true;
  sim::Time counted_from_{0};  // since when the time-out in force counts
  std::vector<Flow> flows_;
  std::vector<sim::TenantId> backlogged_;
  std::vector<std::size_t> place_;  // of each flow in `backlogged_`
  std::uint64_t next_serial_ = 1;
  std::size_t size_ = 0;
  bool takes_newest_ = false;
  bool by_own_timeout_;            // edf, and entries may have timeouts of their own
  bool is_ordered_;                // by deadlines
  sim::Ring<Waiting> by_timeout_;  // with the queue's timeout, in order of entry
  std::vector<Waiting> own_;       // with a timeout of their own, as a heap

  // Controlled delay; kForever as target: none.
  sim::Time target_ = sim::kForever;
  sim::Time interval_{0};
  sim::Time interval_end_{0};
  sim::Time shortest_ = sim::kForever;  // shortest wait of this interval
  bool overloaded_ = false;
};

}  // namespace spillway::gateway
