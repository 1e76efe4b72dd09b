#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "signals/adapters.h"
#include "signals/busy_monitor.h"
#include "signals/exact_estimator.h"
#include "signals/latency_predictor.h"
#include "signals/load_changes.h"
#include "signals/outstanding.h"
#include "signals/prefix_index.h"
#include "signals/scrapes.h"
#include "signals/signal_source.h"
#include "signals/tiers.h"
#include "sim/ids.h"
#include "sim/mix.h"
#include "sim/time.h"
#include "workload/request_table.h"

namespace spillway::signals {

/// The request of a decision, as far as a decision may see it. The output length is not known in
/// advance;
/// at most a prediction is.
class RequestView {
 public:
  RequestView(const workload::RequestTable& requests, sim::RequestId id)
      : requests_(&requests), id_(id) {}

  sim::RequestId id() const { return id_; }
  /// Position in the order of arrival.
  std::uint32_t row() const { return requests_->row(id_); }
  std::int32_t input_tokens() const { return requests_->input_tokens(id_); }
  /// Maximum of its output that its client states; 0: none.
  std::int32_t max_tokens() const { return requests_->max_tokens(id_); }
  /// The prediction of its output, at least 1. Precondition: the policy's needs include it.
  std::int32_t predicted_output_tokens() const { return requests_->predicted_output_tokens(id_); }
  /// The further columns of the trace, and number of the value of the i-th one
  /// (workload::Attribute::kNone: it has none).
  std::span<const workload::Attribute> attributes() const { return requests_->attributes(); }
  std::uint32_t attribute(std::size_t i) const { return requests_->attribute(id_, i); }
  std::uint16_t tenant() const { return requests_->tenant(id_); }
  /// Model that it names itself, or else its tenant; empty: none.
  const std::string& model() const { return requests_->models()[requests_->model(id_)]; }
  /// Position of that model among those of the run; 0: none.
  std::uint16_t model_index() const { return requests_->model(id_); }
  std::uint16_t slo_class() const { return requests_->slo_class(id_); }
  /// Priority of its SLO class; higher is more important.
  std::int64_t priority() const { return requests_->class_of(id_).priority; }
  sim::Time arrival() const { return requests_->arrival(id_); }
  /// Content of the first shared segment of the prompt; unset: none.
  std::optional<std::uint64_t> prefix_group() const {
    const auto segments = requests_->segments(id_);
    if (segments.empty()) return std::nullopt;
    return segments.front().content;
  }
  /// The session whose prompts begin with the same `segments` shared segments; unset: the prompt
  /// has fewer.
  std::optional<std::uint64_t> session(std::size_t segments) const {
    const auto all = requests_->segments(id_);
    if (all.size() < segments) return std::nullopt;
    std::uint64_t key = 0;
    for (const workload::Segment& segment : all.first(segments)) {
      key = sim::mix(key ^ segment.content);
    }
    return key;
  }
  /// Number of output tokens: only for completed requests, whose length a gateway has observed.
  std::int32_t answered_tokens() const { return requests_->target_output_tokens(id_); }

 private:
  const workload::RequestTable* requests_;
  sim::RequestId id_;
};

/// The state of the fleet: where views read the instances, and exact predictions, which no real
/// gateway has.
struct Sources {
  std::span<SignalSource* const> instances;
  /// Past readings; if empty, every value is read on demand.
  std::span<const InstanceSignal> stored;
  Scrapes* scrapes = nullptr;                 ///< null unless the instances are scraped
  const LoadChanges* load_changes = nullptr;  ///< null unless the router follows them
  ExactEstimator* exact_estimator = nullptr;  ///< null unless a policy reads it
  std::span<const sim::InstanceId> ready;     ///< in order; empty: all
  bool has_workers = true;                    ///< whether any instance is ready
  std::span<const char> stale;                ///< of tests: whether metrics are; empty: by scrapes
  /// The instances that compute prompts, that continue requests, and of which the first instance of
  /// a request is chosen; all empty without pools.
  std::span<const sim::InstanceId> prefill_pool, decode_pool, entry_pool;
  std::span<const Adapters> adapters;           ///< of tests; empty: none
  const std::string* adapter = nullptr;         ///< of the request of a test; null: none
  std::span<const std::optional<Tiers>> tiers;  ///< of tests, for a request; empty: none
  bool has_ranks = true;                        ///< whether any instance has several ranks
};

/// State that is local to a gateway and always fresh.
struct LocalState {
  std::span<const std::int32_t> in_flight;  ///< per instance
  /// Per instance; empty unless a policy reads it.
  std::span<const std::int64_t> in_flight_tokens;
  PrefixIndex* prefix_index = nullptr;          ///< null unless a policy reads it
  const Outstanding* outstanding = nullptr;     ///< null unless a policy reads it
  const BusyWorkers* busy = nullptr;            ///< null unless the gateway receives load events
  const LatencyPredictor* predictor = nullptr;  ///< null unless a policy reads it
  std::int64_t routed = 0;                      ///< with pools: requests routed and not ended
};

/// The fleet as a decision may see it: values with their ages, never the true state. Values are
/// read on demand. Valid only during its decision.
///
/// It contains the candidate instances, numbered from 0 in order of the fleet. Each signal has a
/// method.
class View {
 public:
  /// `sources` and `local` outlive the view.
  View(const Sources& sources, const LocalState& local, sim::Time now)
      : sources_(&sources),
        local_(&local),
        now_(now),
        candidates_(sources.ready),
        load_changes_(sources.load_changes) {}
  View(const Sources& sources, LocalState&& local, sim::Time now) = delete;
  /// The same view restricted to some of the fleet's instances, in order. `candidates` is not empty
  /// and outlives the view.
  View of(std::span<const sim::InstanceId> candidates) const {
    View copy = *this;
    copy.candidates_ = candidates;
    copy.load_changes_ = nullptr;
    return copy;
  }
  /// The same view of all instances, ready or not.
  View whole_fleet() const { return of({}); }

  bool has_pools() const { return !sources_->decode_pool.empty(); }
  /// Precondition: there are pools. The prefill pool may have no instances.
  bool has_prefill_pool() const { return !sources_->prefill_pool.empty(); }
  View prefill_pool() const { return of(sources_->prefill_pool); }
  View decode_pool() const { return of(sources_->decode_pool); }
  /// The instances that compute prompts, and those that continue requests: without pools all.
  View prompt_pool() const {
    return has_pools() && has_prefill_pool() ? prefill_pool() : stream_pool();
  }
  View stream_pool() const { return has_pools() ? decode_pool() : *this; }
  /// The instances of which the first one of a request is chosen.
  View entry_pool() const { return has_pools() ? of(sources_->entry_pool) : *this; }
  /// With pools: requests of this gateway that have been routed and have not ended.
  std::int64_t routed() const { return local_->routed; }

  /// The same view with the instance that the router would choose.
  View knowing(sim::InstanceId next_choice) const {
    View copy = *this;
    copy.next_choice_ = next_choice;
    return copy;
  }

  sim::Time now() const { return now_; }
  std::size_t size() const {
    return candidates_.empty() ? local_->in_flight.size() : candidates_.size();
  }
  /// The i-th candidate.
  sim::InstanceId id(std::size_t i) const {
    return candidates_.empty() ? sim::InstanceId{i} : candidates_[i];
  }
  /// The candidate's metrics as reported, possibly old.
  InstanceSignal instance(std::size_t i) const {
    const sim::InstanceId at = id(i);
    return is_live() ? sources_->instances[at.index()]->read(now_) : reported(at);
  }
  /// Parts of them, at lower cost.
  Occupancy occupancy(std::size_t i) const {
    const sim::InstanceId at = id(i);
    if (is_live()) return sources_->instances[at.index()]->occupancy();
    const InstanceSignal& seen = reported(at);
    return {seen.waiting, seen.running};
  }
  double kv_utilization(std::size_t i) const {
    const sim::InstanceId at = id(i);
    if (is_live()) return sources_->instances[at.index()]->read(now_).kv_utilization;
    return reported(at).kv_utilization;
  }
  /// Whether the metrics of the instance are stale.
  bool is_stale(std::size_t i) const {
    if (!sources_->stale.empty()) return sources_->stale[id(i).index()] != 0;
    return sources_->scrapes &&
           sources_->scrapes->is_stale(id(i), *sources_->instances[id(i).index()], now_);
  }
  bool skips_stale() const { return sources_->scrapes && sources_->scrapes->skips_stale(); }
  /// Whether any instance is ready. While none is, the view shows the last ready ones.
  bool has_workers() const { return sources_->has_workers; }
  /// Whether the worker is busy, by the load events so far.
  bool is_busy(std::size_t i) const { return local_->busy && local_->busy->is_busy(id(i), now_); }
  bool skips_busy() const { return local_->busy && local_->busy->router_skips_busy(); }
  Capacity capacity(std::size_t i) const { return sources_->instances[id(i).index()]->capacity(); }
  std::size_t num_ranks(std::size_t i) const {
    return sources_->instances[id(i).index()]->num_ranks();
  }
  /// The rank to which an instance of the fleet assigns the next request, unless the router chooses
  /// one.
  std::size_t next_rank(sim::InstanceId instance) const {
    return sources_->has_ranks ? sources_->instances[instance.index()]->next_rank() : 0;
  }
  /// Requests routed there and not yet finished: the router's own count, always fresh.
  std::int32_t in_flight(std::size_t i) const { return local_->in_flight[id(i).index()]; }
  /// Prompt tokens of these requests that were not sent there before. Precondition: the policy's
  /// needs include it, as for the rest.
  std::int64_t in_flight_tokens(std::size_t i) const {
    return local_->in_flight_tokens[id(i).index()];
  }
  /// What the request would add to them.
  std::int64_t added_tokens(const RequestView& request, std::size_t i) const {
    return request.input_tokens() - sent_tokens(request, i);
  }
  /// What the request would meet there; unset: nothing is known yet.
  std::optional<Prediction> prediction(const RequestView& request, std::size_t i) const {
    if (!local_->predictor) return std::nullopt;
    return local_->predictor->predict(request, *this, i);
  }
  /// The adapters of the instance; null: it has none.
  const Adapters* adapters(std::size_t i) const {
    return sources_->adapters.empty() ? nullptr : &sources_->adapters[id(i).index()];
  }
  /// The adapter that the request asks for; null: none.
  const std::string* adapter() const { return sources_->adapter; }
  /// The blocks of the request of the decision in the instance's other tiers; null: it has none.
  const Tiers* tiers(std::size_t i) const {
    if (sources_->tiers.empty()) return nullptr;
    const std::optional<Tiers>& there = sources_->tiers[id(i).index()];
    return there ? &*there : nullptr;
  }
  /// Admitted requests that await a first token. Precondition: the policy's needs include it.
  const Outstanding& outstanding() const { return *local_->outstanding; }
  /// Time of its first token there if no other request followed. Precondition: as above.
  sim::Time exact_first_token(const RequestView& request, std::size_t i) const {
    return sources_->exact_estimator->first_token(request.id(), id(i), now_);
  }
  /// Whether the router would choose the i-th candidate at this instant for the request of the
  /// decision. Precondition: as above.
  bool is_next_choice(std::size_t i) const { return next_choice_ == id(i); }
  /// Number of leading full blocks of the prompt that were sent there before, by the gateway's own
  /// record: to the rank, or to the rank with the most of them.
  std::int64_t sent_blocks(const RequestView& request, std::size_t i, std::size_t rank) const {
    return local_->prefix_index->matched_blocks(request.id(), id(i).index(), rank);
  }
  std::int64_t sent_blocks(const RequestView& request, std::size_t i) const {
    return local_->prefix_index->matched_blocks(request.id(), id(i).index());
  }
  /// The same in tokens.
  std::int64_t sent_tokens(const RequestView& request, std::size_t i) const {
    return sent_blocks(request, i) * local_->prefix_index->block_size_tokens();
  }
  /// The same as a share of the prompt's full blocks; 0 for a prompt of less than a block.
  double prefix_match(const RequestView& request, std::size_t i) const {
    return prefix_share(local_->prefix_index->prompt(request.id()), i);
  }
  /// The same of every candidate.
  void prefix_matches(const RequestView& request, std::span<double> shares) const {
    const PrefixIndex::Prompt& prompt = local_->prefix_index->prompt(request.id());
    for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = prefix_share(prompt, i);
  }
  /// Number of blocks in the gateway's own record of the instance.
  std::int64_t remembered_blocks(std::size_t i) const {
    return local_->prefix_index->remembered_blocks(id(i).index());
  }
  /// Number of blocks of the prompt in the KV memory of the rank, or of the rank with the most of
  /// them, as KV events report them without delay.
  std::int64_t cached_blocks(const RequestView& request, std::size_t i, std::size_t rank) const {
    return sources_->instances[id(i).index()]->rank(rank).cached_blocks(request.id(), now_);
  }
  std::int64_t cached_blocks(const RequestView& request, std::size_t i) const {
    return sources_->instances[id(i).index()]->cached_blocks(request.id(), now_);
  }
  /// The same as a share of the prompt's full blocks; 0 for a prompt of less than a block.
  double cached_share(const RequestView& request, std::size_t i) const {
    const std::int64_t cached = cached_blocks(request, i);
    if (cached == 0) return 0;
    const std::int64_t blocks = request.input_tokens() / capacity(i).block_size_tokens;
    return static_cast<double>(cached) / static_cast<double>(blocks);
  }
  /// The changes of the occupancy and the number in flight of the instances, and of which instances
  /// the view contains; null: not followed, or the view is restricted for this decision.
  const LoadChanges* load_changes() const { return load_changes_; }
  /// Waiting + running + in flight. Requests that the instance reports count twice, as in BLIS's
  /// EffectiveLoad.
  std::int64_t effective_load(std::size_t i) const {
    const Occupancy reported = occupancy(i);
    return std::int64_t{reported.waiting} + reported.running + in_flight(i);
  }

 private:
  double prefix_share(const PrefixIndex::Prompt& prompt, std::size_t i) const {
    const std::int64_t matched = local_->prefix_index->matched_blocks(prompt, id(i).index());
    if (matched == 0) return 0;
    return static_cast<double>(matched) / static_cast<double>(prompt.blocks);
  }
  bool is_live() const { return sources_->stored.empty() && !sources_->scrapes; }
  const InstanceSignal& reported(sim::InstanceId at) const {
    if (!sources_->stored.empty()) return sources_->stored[at.index()];
    return sources_->scrapes->seen(at, *sources_->instances[at.index()], now_);
  }

  const Sources* sources_;
  const LocalState* local_;
  sim::Time now_;
  std::span<const sim::InstanceId> candidates_;  // empty: the whole fleet
  const LoadChanges* load_changes_;
  std::optional<sim::InstanceId> next_choice_;  // the router's; unset unless a policy reads it
};

}  // namespace spillway::signals
