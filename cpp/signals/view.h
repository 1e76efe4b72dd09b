#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "signals/busy_monitor.h"
#include "signals/exact_estimator.h"
#include "signals/outstanding.h"
#include "signals/prefix_index.h"
#include "signals/scrapes.h"
#include "signals/signal_source.h"
#include "signals/transports.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_table.h"

namespace spillway::signals {

/// What a decision may see of the request it is about. The output length is not known in advance.
class RequestView {
 public:
  RequestView(const workload::RequestTable& requests, sim::RequestId id)
      : requests_(&requests), id_(id) {}

  sim::RequestId id() const { return id_; }
  /// Position in the order of arrival.
  std::uint32_t row() const { return requests_->row(id_); }
  std::int32_t input_tokens() const { return requests_->input_tokens(id_); }
  std::uint16_t tenant() const { return requests_->tenant(id_); }
  std::uint16_t slo_class() const { return requests_->slo_class(id_); }
  /// Of its SLO class; higher is more important.
  std::int64_t priority() const { return requests_->class_of(id_).priority; }
  sim::Time arrival() const { return requests_->arrival(id_); }
  /// What the prompt begins with, where it shares that with others: the content of its first
  /// segment.
  std::optional<std::uint64_t> prefix_group() const {
    const auto segments = requests_->segments(id_);
    if (segments.empty()) return std::nullopt;
    return segments.front().content;
  }
  /// Tokens of the answer. Whoever has passed them on may know: it is for requests that are done.
  std::int32_t answered_tokens() const { return requests_->target_output_tokens(id_); }

 private:
  const workload::RequestTable* requests_;
  sim::RequestId id_;
};

/// Where the state of the instances is read.
struct Sources {
  std::span<SignalSource* const> instances;
  /// Past readings; where it is empty, every value is read when it is asked for.
  std::span<const InstanceSignal> stored;
  Scrapes* scrapes = nullptr;  ///< null unless the instances are scraped
  sim::Time stale_after = sim::kForever;
  WhenStale when_stale = WhenStale::hold;
};

/// What a gateway knows by itself, always fresh; and what none does.
struct LocalState {
  std::span<const std::int32_t> in_flight;     ///< per instance
  PrefixIndex* prefix_index = nullptr;         ///< null unless some policy reads it
  const Outstanding* outstanding = nullptr;    ///< likewise
  ExactEstimator* exact_estimator = nullptr;   ///< likewise; knows what no gateway does
  std::optional<sim::InstanceId> next_choice;  ///< the router's; unset unless some policy reads it
  const BusyWorkers* busy = nullptr;           ///< null unless load events are followed
  bool has_workers = true;                     ///< whether any instance is ready
};

/// What a decision may see of the fleet: values with their ages, never the truth. A value is only
/// read if it is asked for. Valid during the decision it was made for.
///
/// It holds the instances that may be chosen, numbered from 0 in order of the fleet. Each signal
/// has a method of its own, hence their number.
class View {
 public:
  View(const Sources& sources, const LocalState& local, sim::Time now)
      : sources_(&sources), local_(local), now_(now) {}
  /// The same view of some of the fleet's instances, in order. Not empty; it must outlive the view.
  View of(std::span<const sim::InstanceId> candidates) const {
    View copy = *this;
    copy.candidates_ = candidates;
    return copy;
  }

  /// The same view for a decision that may know which instance the router would choose.
  View knowing(sim::InstanceId next_choice) const {
    View copy = *this;
    copy.local_.next_choice = next_choice;
    return copy;
  }

  std::size_t size() const {
    return candidates_.empty() ? local_.in_flight.size() : candidates_.size();
  }
  /// Which instance of the fleet the i-th is.
  sim::InstanceId id(std::size_t i) const {
    return candidates_.empty() ? sim::InstanceId{i} : candidates_[i];
  }
  /// As reported, possibly old.
  InstanceSignal instance(std::size_t i) const {
    const sim::InstanceId at = id(i);
    if (!sources_->stored.empty()) return sources_->stored[at.index()];
    if (sources_->scrapes) return scraped(at);
    return sources_->instances[at.index()]->read(now_);
  }
  /// Whether what the instance reported is too old to be believed.
  bool is_stale(std::size_t i) const {
    if (sources_->stale_after == sim::kForever) return false;
    return is_too_old(
        sources_->scrapes->seen(id(i), *sources_->instances[id(i).index()], now_).measured);
  }
  bool skips_stale() const {
    return sources_->stale_after != sim::kForever && sources_->when_stale == WhenStale::fail_closed;
  }
  /// Whether any instance is ready. While none is, the view is of those that were last.
  bool has_workers() const { return local_.has_workers; }
  /// By the load events so far.
  bool is_busy(std::size_t i) const { return local_.busy && local_.busy->is_busy(id(i)); }
  bool skips_busy() const { return local_.busy && local_.busy->router_skips_busy(); }
  Capacity capacity(std::size_t i) const { return sources_->instances[id(i).index()]->capacity(); }
  std::size_t num_ranks(std::size_t i) const {
    return sources_->instances[id(i).index()]->num_ranks();
  }
  /// The rank that an instance of the fleet gives the next request, unless the router chooses one.
  std::size_t next_rank(sim::InstanceId instance) const {
    return sources_->instances[instance.index()]->next_rank();
  }
  /// Requests routed there and not yet finished: the router's own count, always fresh.
  std::int32_t in_flight(std::size_t i) const { return local_.in_flight[id(i).index()]; }
  Occupancy occupancy(std::size_t i) const {
    if (sources_->stored.empty() && !sources_->scrapes) {
      return sources_->instances[id(i).index()]->occupancy();
    }
    const InstanceSignal seen = instance(i);
    return {seen.waiting, seen.running};
  }
  /// What was admitted and awaits its first token. Precondition: the policy says that it reads it.
  const Outstanding& outstanding() const { return *local_.outstanding; }
  /// When its first token would come from there if no other request followed. Precondition as
  /// before.
  sim::Time exact_first_token(const RequestView& request, std::size_t i) const {
    return local_.exact_estimator->first_token(request.id(), id(i), now_);
  }
  /// Whether the i-th is the one that the router would choose at this instant for the request that
  /// the decision is about. Precondition as before.
  bool is_next_choice(std::size_t i) const { return local_.next_choice == id(i); }
  /// Full blocks of the prompt, from the first on, that were sent there before, by the gateway's
  /// own record: to the rank, or to that with the most.
  std::int64_t sent_blocks(const RequestView& request, std::size_t i, std::size_t rank) const {
    return local_.prefix_index->matched_blocks(request.id(), id(i).index(), rank);
  }
  std::int64_t sent_blocks(const RequestView& request, std::size_t i) const {
    return local_.prefix_index->matched_blocks(request.id(), id(i).index());
  }
  /// The same in tokens.
  std::int64_t sent_tokens(const RequestView& request, std::size_t i) const {
    return sent_blocks(request, i) * local_.prefix_index->block_size_tokens();
  }
  /// The same as a share of the prompt's full blocks; 0 for a prompt of less than a block.
  double prefix_match(const RequestView& request, std::size_t i) const {
    const std::int64_t blocks = local_.prefix_index->prompt_blocks(request.id());
    if (blocks == 0) return 0;
    return static_cast<double>(sent_blocks(request, i)) / static_cast<double>(blocks);
  }
  /// Blocks of the prompt that the rank, or that with the most, really holds, as events of the KV
  /// memory tell at once.
  std::int64_t cached_blocks(const RequestView& request, std::size_t i, std::size_t rank) const {
    return sources_->instances[id(i).index()]->rank(rank).cached_blocks(request.id(), now_);
  }
  std::int64_t cached_blocks(const RequestView& request, std::size_t i) const {
    return sources_->instances[id(i).index()]->cached_blocks(request.id(), now_);
  }
  /// Waiting + running + in flight. Requests that the instance reports count twice, as in BLIS's
  /// EffectiveLoad.
  std::int64_t effective_load(std::size_t i) const {
    const Occupancy reported = occupancy(i);
    return std::int64_t{reported.waiting} + reported.running + in_flight(i);
  }

 private:
  bool is_too_old(sim::Time measured) const {
    return !sim::is_set(measured) || now_ - measured >= sources_->stale_after;
  }
  InstanceSignal scraped(sim::InstanceId at) const {
    InstanceSignal seen = sources_->scrapes->seen(at, *sources_->instances[at.index()], now_);
    if (sources_->stale_after == sim::kForever || !is_too_old(seen.measured)) return seen;
    if (sources_->when_stale == WhenStale::fail_open) return {.measured = seen.measured};
    if (sources_->when_stale == WhenStale::fail_closed) {
      seen.kv_utilization = 1;
      seen.free_blocks = 0;
    }
    return seen;
  }

  const Sources* sources_;
  LocalState local_;
  sim::Time now_;
  std::span<const sim::InstanceId> candidates_;  // empty: the whole fleet
};

}  // namespace spillway::signals
