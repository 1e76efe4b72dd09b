#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/settings.h"
#include "cluster/config.h"
#include "cluster/context.h"
#include "cluster/step_costs.h"
#include "gateway/admission/admission.h"
#include "signals/busy_monitor.h"
#include "signals/exact_estimator.h"
#include "signals/latency_predictor.h"
#include "signals/needs.h"
#include "signals/outstanding.h"
#include "signals/prefix_index.h"
#include "signals/signal_source.h"
#include "signals/tiers.h"
#include "signals/view.h"
#include "sim/error.h"
#include "sim/ids.h"
#include "sim/names.h"
#include "sim/time.h"
#include "sim/value.h"
#include "workload/outcome.h"
#include "workload/request_table.h"

/// What surrounds a policy in a test: requests, a fleet that reports what the test says, what the
/// gateway remembers, and the clock.
namespace spillway::bindings::testing {

using cluster::Simulation;
using sim::InstanceId;
using sim::RequestId;
using sim::Time;
using workload::Outcome;

// Every one of them is provided here.
static_assert(sizeof(signals::Needs) == 11, "a test must be able to script each need of a policy");

// What Python passes of a request and of an instance: the fields of its `Request` and
// `InstanceSignals`, in order.
using Offer = std::tuple<std::int32_t,                   // input_tokens
                         std::int32_t,                   // output_tokens
                         std::string,                    // tenant
                         std::string,                    // slo_class
                         std::optional<double>,          // arrival_s; none: now
                         std::optional<std::string>,     // prefix_group
                         std::uint32_t,                  // prefix_tokens
                         std::optional<std::string>,     // adapter
                         std::int32_t>;                  // max_tokens
using Script = std::tuple<std::int32_t,                  // waiting
                          std::int32_t,                  // running
                          double,                        // kv_utilization
                          std::optional<std::int64_t>,   // free_blocks; none: those not in use
                          std::int64_t,                  // prefill_tokens
                          std::int64_t,                  // prefix_hits
                          std::int64_t,                  // prefix_lookups
                          std::optional<double>,         // measured_s; none: now
                          std::int32_t,                  // in_flight
                          bool,                          // is_busy
                          std::int64_t,                  // cached_blocks
                          std::optional<double>,         // exact_first_token_s; none: never
                          bool,                          // is_stale
                          std::optional<std::int64_t>,   // sent_blocks; none: by what was sent
                          std::int64_t,                  // in_flight_tokens
                          std::vector<std::string>,      // active_adapters
                          std::vector<std::string>,      // waiting_adapters
                          std::int64_t,                  // max_adapters
                          std::optional<double>,         // predicted_ttft_ms; none: no prediction
                          double,                        // ttft_headroom_ms
                          double,                        // tpot_headroom_ms
                          std::optional<std::int64_t>,   // host_blocks; none: without that tier
                          std::optional<std::int64_t>>;  // disk_blocks; none: without that tier
inline constexpr std::size_t kInFlight = 8, kIsBusy = 9, kIsStale = 12, kSentBlocks = 13,
                             kInFlightTokens = 14, kActiveAdapters = 15, kWaitingAdapters = 16,
                             kMaxAdapters = 17, kTtft = 18, kTtftHeadroom = 19, kTpotHeadroom = 20,
                             kHostBlocks = 21,
                             kDiskBlocks = 22;       // of a script
using Scripts = std::optional<std::vector<Script>>;  // none: as before
using When = std::optional<double>;                  // in seconds; none: no time has passed

[[noreturn]] inline void refuse(std::string path, std::string value, std::string allowed) {
  throw sim::ConfigError({{std::move(path), std::move(value), std::move(allowed)}});
}

inline Time time_of(const char* path, double seconds) {
  if (!(seconds >= 0 && seconds <= sim::kLongestSpan_s)) {
    refuse(path, sim::to_text(seconds), "must be >= 0 and <= " + sim::to_text(sim::kLongestSpan_s));
  }
  return sim::from_seconds(seconds);
}

template <class Named>
std::uint16_t position(const std::vector<Named>& all, const std::string& name, const char* path) {
  const std::size_t found = sim::index_of_name(all, name);
  if (found < all.size()) return static_cast<std::uint16_t>(found);
  std::string names;
  for (const Named& named : all) names += (names.empty() ? "'" : ", '") + named.name + "'";
  refuse(path, "'" + name + "'", "must be one of " + names);
}

inline Outcome outcome_of(const std::string& name) {
  for (std::size_t i = 0; i <= static_cast<std::size_t>(Outcome::cancelled); ++i) {
    if (workload::kOutcomeNames[i] == name) return static_cast<Outcome>(i);
  }
  refuse("outcome", "'" + name + "'", "must be how a request ends, e.g. 'completed'");
}

/// An instance that reports what the test says.
class ScriptedInstance final : public signals::SignalSource {
 public:
  explicit ScriptedInstance(const signals::Capacity& capacity) : capacity_(capacity) {
    reported_.free_blocks = capacity.num_kv_blocks;
  }

  void set(const Script& script) {
    const auto& [waiting, running, kv_utilization, free_blocks, prefill_tokens, prefix_hits,
                 prefix_lookups, measured_s, in_flight, is_busy, cached_blocks, exact_first_token_s,
                 is_stale, sent_blocks, in_flight_tokens, active_adapters, waiting_adapters,
                 max_adapters, predicted_ttft_ms, ttft_headroom_ms, tpot_headroom_ms, host_blocks,
                 disk_blocks] = script;
    const double unused = (1 - kv_utilization) * static_cast<double>(capacity_.num_kv_blocks);
    reported_ = {.waiting = waiting,
                 .running = running,
                 .kv_utilization = kv_utilization,
                 .free_blocks = free_blocks.value_or(std::llround(unused)),
                 .prefill_tokens = prefill_tokens,
                 .prefix_hits = prefix_hits,
                 .prefix_lookups = prefix_lookups};
    measured_ = measured_s ? std::optional(time_of("measured_s", *measured_s)) : std::nullopt;
    cached_blocks_ = cached_blocks;
    exact_first_token_ =
        exact_first_token_s ? time_of("exact_first_token_s", *exact_first_token_s) : sim::kUnset;
  }
  Time exact_first_token() const { return exact_first_token_; }

  signals::InstanceSignal read(Time now) override {
    signals::InstanceSignal seen = reported_;
    seen.measured = measured_.value_or(now);
    return seen;
  }
  signals::Occupancy occupancy() const override { return {reported_.waiting, reported_.running}; }
  signals::Capacity capacity() const override { return capacity_; }
  std::int64_t cached_blocks(RequestId, Time) override { return cached_blocks_; }

 private:
  signals::Capacity capacity_;
  signals::InstanceSignal reported_;
  std::optional<Time> measured_;  // none: always now
  std::int64_t cached_blocks_ = 0;
  Time exact_first_token_ = sim::kUnset;
};

/// A source of no requests, which knows the tenants and classes of those that tests add.
class NoArrivals final : public workload::ArrivalStream {
 public:
  explicit NoArrivals(const Simulation& simulation) {
    for (const auto& tenant : simulation.tenants) add(tenants_, tenant.name);
    for (const auto& slo_class : simulation.slo_classes) add(slo_classes_, slo_class.name);
    if (const auto* synthetic = std::get_if<workload::Synthetic>(&simulation.workload)) {
      for (const auto& client : synthetic->clients) add(tenants_, client.tenant);
    } else {
      const auto& trace = std::get<workload::Trace>(simulation.workload);
      for (const std::string& name : workload::possible_tenants(trace)) add(tenants_, name);
      for (const std::string& name : workload::possible_slo_classes(trace)) add(slo_classes_, name);
    }
    if (tenants_.empty()) tenants_.emplace_back("default");
  }
  std::optional<workload::Arrival> next() override { return std::nullopt; }
  const std::vector<std::string>& tenants() const override { return tenants_; }
  const std::vector<std::string>& slo_classes() const override { return slo_classes_; }
  bool shares_segments() const override { return true; }

 private:
  static void add(std::vector<std::string>& names, const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }

  std::vector<std::string> tenants_;
  std::vector<std::string> slo_classes_;
};

/// What surrounds a policy: requests, a scripted fleet, the gateway's own records, the clock.
class Surroundings : private signals::ExactEstimator, private signals::LatencyPredictor {
 public:
  Surroundings(const Settings& settings, std::uint64_t with_seed, const signals::Needs& needs)
      : simulation(settings.as<Simulation>()),
        seed(with_seed),
        requests(std::make_unique<NoArrivals>(simulation), true, nullptr, simulation.tenants,
                 simulation.slo_classes, Time{0}),
        needs_(needs) {
    check_scriptable();
    if (!simulation.length_prediction.is_exact()) {
      requests.predict_lengths(simulation.length_prediction, seed);
    }
  }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;
  ~Surroundings() override = default;

  const Simulation simulation;
  const std::uint64_t seed;
  workload::RequestTable requests;

  // ---- the clock ---------------------------------------------------------------------------

  Time advance(const When& now_s) {
    if (!now_s) return now_;
    const Time now = time_of("now_s", *now_s);
    if (now < now_) {
      refuse("now_s", sim::to_text(*now_s),
             "must be >= " + sim::to_text(sim::to_seconds(now_)) +
                 ", the instant of the call before: time does not go backwards");
    }
    return now_ = now;
  }

  // ---- requests ----------------------------------------------------------------------------

  /// Where a request is, for calls that only make sense there.
  enum class Stage : std::uint8_t { offered, admitted, dispatched, answered, over };

  RequestId add(const Offer& offer) {
    const auto& [input_tokens, output_tokens, tenant, slo_class, arrival_s, prefix_group,
                 prefix_tokens, adapter, max_tokens] = offer;
    workload::Arrival arrival{.time = arrival_s ? time_of("arrival_s", *arrival_s) : now_,
                              .input_tokens = input_tokens,
                              .output_tokens = output_tokens,
                              .tenant = position(requests.tenants, tenant, "tenant"),
                              .slo_class = position(requests.slo_classes, slo_class, "slo_class"),
                              .segments = {},
                              .max_tokens = max_tokens};
    if (arrival.time > now_) {
      refuse("arrival_s", sim::to_text(*arrival_s),
             "must be <= now_s (" + sim::to_text(sim::to_seconds(now_)) + ")");
    }
    std::vector<workload::Segment> prefix;
    if (prefix_group) {
      const std::uint64_t next = groups_.size();
      prefix.push_back({groups_.try_emplace(*prefix_group, next).first->second, prefix_tokens});
    }
    const bool is_scripted =
        std::ranges::any_of(sent_blocks_, [](auto& b) { return b.has_value(); });
    if (prefix_index_ && is_scripted) send_scripted_blocks(arrival, prefix);
    arrival.segments = prefix;
    adapter_ = adapter;
    sources_.adapter = adapter_ ? &*adapter_ : nullptr;
    stages_.push_back(Stage::offered);
    const RequestId id = requests.add(arrival);
    if (simulation.length_prediction.learns()) requests.arrived(id);
    return id;
  }
  signals::RequestView request(RequestId id) const { return {requests, id}; }
  /// Predictions of output lengths may learn from it.
  void note_completed(RequestId id) {
    if (simulation.length_prediction.learns()) requests.completed(id);
  }

  Stage stage(RequestId id) const { return stages_.at(id.index()); }
  void set_stage(RequestId id, Stage stage) { stages_[id.index()] = stage; }
  /// Throws UsageError unless the request is in one of `stages`, which `allowed` says in words.
  void expect(RequestId id, std::initializer_list<Stage> stages, const char* allowed) const {
    if (std::find(stages.begin(), stages.end(), stage(id)) == stages.end()) {
      throw sim::UsageError(std::string("the request must be one that ") + allowed);
    }
  }

  // ---- the fleet ---------------------------------------------------------------------------

  /// Of the simulation.
  std::size_t count_configured() const {
    std::size_t total = 0;
    for (const auto& group : simulation.instances) total += static_cast<std::size_t>(group.count);
    return total;
  }
  /// Of the test; 0: not settled yet.
  std::size_t num_instances() const { return fleet_.size(); }
  gateway::Scope scope() const {
    return {requests.tenants, requests.slo_classes, requests.models(), num_instances(),
            cluster::step_costs(simulation)};
  }
  /// How many there are is settled by the first call.
  void script(const Scripts& scripts) {
    if (scripts && scripts->empty()) refuse("instances", "[]", "must hold at least one instance");
    if (fleet_.empty()) settle(scripts ? scripts->size() : count_configured());
    if (!scripts) return;
    if (scripts->size() != fleet_.size()) {
      refuse("instances", std::to_string(scripts->size()) + " of them",
             "must be as many as in the first call: " + std::to_string(fleet_.size()));
    }
    for (std::size_t i = 0; i < fleet_.size(); ++i) {
      const Script& script = (*scripts)[i];
      fleet_[i].set(script);
      in_flight_[i] = std::get<kInFlight>(script);
      busy_->report(InstanceId{i}, {});  // without any load it is not busy
      if (std::get<kIsBusy>(script)) busy_->mark_overloaded(InstanceId{i}, now_);
      stale_[i] = is_stale(script);
      sent_blocks_[i] = std::get<kSentBlocks>(script);
      in_flight_tokens_[i] = std::get<kInFlightTokens>(script);
      adapters_[i] = {std::get<kActiveAdapters>(script), std::get<kWaitingAdapters>(script),
                      std::get<kMaxAdapters>(script)};
      tiers_[i].reset();
      const auto& host_blocks = std::get<kHostBlocks>(script);
      const auto& disk_blocks = std::get<kDiskBlocks>(script);
      if (host_blocks || disk_blocks) {
        tiers_[i] = {host_blocks.value_or(0), disk_blocks.value_or(0)};
      }
      predictions_[i].reset();
      if (const auto& ttft_ms = std::get<kTtft>(script)) {
        predictions_[i] = {*ttft_ms, std::get<kTtftHeadroom>(script),
                           std::get<kTpotHeadroom>(script)};
      }
    }
  }
  InstanceId instance(std::int64_t index) const {
    if (index < 0 || index >= std::ssize(fleet_)) {
      refuse("instance", std::to_string(index),
             "must be >= 0 and < " + std::to_string(fleet_.size()) + ", the number of instances");
    }
    return InstanceId{static_cast<std::size_t>(index)};
  }
  signals::View view(bool has_workers = true) {
    sources_.has_workers = has_workers;
    return {sources_, local_, now_};
  }

  // ---- what the gateway remembers ----------------------------------------------------------

  void note_admitted(RequestId id) {
    if (!outstanding_) return;
    std::int64_t fewest = requests.input_tokens(id);
    for (std::size_t i = 0; i < fleet_.size(); ++i) {
      fewest = std::min(fewest, uncached_tokens(id, InstanceId{i}));
    }
    outstanding_->admitted(id, fewest);
  }
  void note_lost(RequestId id) {
    if (outstanding_) outstanding_->left_queue(id);
  }
  /// Precondition: `note_admitted`.
  void note_sent(RequestId id, InstanceId instance) {
    if (sent_to_.size() <= id.index()) sent_to_.resize(id.index() + 1);
    sent_to_[id.index()] = instance;
    if (outstanding_) outstanding_->sent(id, instance, uncached_tokens(id, instance), now_);
    if (prefix_index_) prefix_index_->sent(id, instance.index(), 0);
  }
  void note_first_token(RequestId id) {
    if (outstanding_) outstanding_->first_token(id, sent_to(id), now_);
  }
  void note_ended(RequestId id) {
    if (outstanding_) outstanding_->ended(id, sent_to(id), now_);
  }
  /// Precondition: `note_sent`.
  InstanceId sent_to(RequestId id) const { return sent_to_[id.index()]; }

 private:
  void check_scriptable() const {
    for (std::size_t i = 0; i < simulation.instances.size(); ++i) {
      const std::int64_t ranks = simulation.instances[i].data_parallel_size;
      if (ranks == 1) continue;
      refuse(sim::index_path("instances", i) + ".data_parallel_size", std::to_string(ranks),
             "must be 1 in a test: ranks cannot be scripted");
    }
  }
  // By the script, or by its age.
  bool is_stale(const Script& script) const {
    const auto* scraped = std::get_if<signals::Scraped>(&simulation.signals);
    const auto& measured_s = std::get<7>(script);
    const bool is_too_old =
        scraped && scraped->stale_after_s && measured_s &&
        now_ - time_of("measured_s", *measured_s) >= sim::from_seconds(*scraped->stale_after_s);
    return std::get<kIsStale>(script) || is_too_old;
  }
  // Makes the gateway's record what the scripts say of a prompt, by sending beginnings of it.
  void send_scripted_blocks(const workload::Arrival& request,
                            std::vector<workload::Segment>& prefix) {
    const std::int64_t block = prefix_index_->block_size_tokens();
    std::vector<std::int64_t> ends;
    for (std::size_t i = 0; i < sent_blocks_.size(); ++i) {
      if (!sent_blocks_[i]) continue;
      const std::int64_t most = request.input_tokens / block;
      const std::string path = sim::index_path("instances", i) + ".sent_blocks";
      if (*sent_blocks_[i] > most) {
        refuse(path, std::to_string(*sent_blocks_[i]),
               "must be <= " + std::to_string(most) + ", the full blocks of the prompt");
      }
      if (!prefix.empty()) {
        refuse(path, std::to_string(*sent_blocks_[i]), "must be unset with a prefix_group");
      }
      if (*sent_blocks_[i] > 0) ends.push_back(*sent_blocks_[i]);
    }
    std::ranges::sort(ends);
    const auto repeated = std::ranges::unique(ends);
    ends.erase(repeated.begin(), repeated.end());
    std::vector<workload::Segment> beginning;
    std::int64_t from = 0;
    for (const std::int64_t end : ends) {
      beginning.push_back({next_content_++, static_cast<std::uint32_t>((end - from) * block)});
      from = end;
      for (std::size_t i = 0; i < sent_blocks_.size(); ++i) {
        if (sent_blocks_[i] != end) continue;
        workload::Arrival sent = request;
        sent.input_tokens = static_cast<std::int32_t>(end * block);
        sent.segments = beginning;
        stages_.push_back(Stage::over);
        prefix_index_->sent(requests.add(sent), i, 0);
      }
    }
    prefix = beginning;
  }
  // Instances have the capacities of those configured, the last ones that of the last group.
  void settle(std::size_t count) {
    for (const auto& group : simulation.instances) {
      const signals::Capacity capacity{.max_num_seqs = group.max_num_seqs,
                                       .max_num_batched_tokens = group.max_num_batched_tokens,
                                       .num_kv_blocks = group.num_kv_blocks,
                                       .block_size_tokens = group.block_size_tokens};
      const bool is_last = &group == &simulation.instances.back();
      for (std::int64_t k = 0; fleet_.size() < count && (is_last || k < group.count); ++k) {
        fleet_.emplace_back(capacity);
      }
    }
    for (ScriptedInstance& instance : fleet_) signal_sources_.push_back(&instance);
    sources_.instances = signal_sources_;
    in_flight_.resize(count);
    stale_.resize(count);
    sent_blocks_.resize(count);
    in_flight_tokens_.resize(count);
    adapters_.resize(count);
    tiers_.resize(count);
    predictions_.resize(count);
    sources_.stale = stale_;
    sources_.adapters = adapters_;
    sources_.tiers = tiers_;
    busy_.emplace(signals::BusyMonitor{}, count);
    if (needs_.prefix_index) {
      const std::vector<std::size_t> ranks(count, 1);
      prefix_index_ = std::make_unique<signals::PrefixIndex>(
          cluster::prefix_index_blocks(simulation), simulation.prefix_index.block_size_tokens,
          requests, ranks);
    }
    if (needs_.outstanding) {
      outstanding_ = std::make_unique<signals::Outstanding>(requests, count);
    }
    sources_.exact_estimator = this;
    local_ = {.in_flight = in_flight_,
              .in_flight_tokens = in_flight_tokens_,
              .prefix_index = prefix_index_.get(),
              .outstanding = outstanding_.get(),
              .busy = &*busy_,
              .predictor = this};
  }

  std::int64_t uncached_tokens(RequestId id, InstanceId instance) {
    const std::int64_t prompt = requests.input_tokens(id);
    if (!prefix_index_) return prompt;
    return prompt -
           prefix_index_->matched_blocks(id, instance.index()) * prefix_index_->block_size_tokens();
  }

  Time first_token(RequestId, InstanceId instance, Time) override {
    return fleet_[instance.index()].exact_first_token();
  }

  std::optional<signals::Prediction> predict(const signals::RequestView&, const signals::View& view,
                                             std::size_t i) const override {
    return predictions_[view.id(i).index()];
  }

  signals::Needs needs_;
  Time now_{0};
  std::vector<Stage> stages_;  // by request
  std::unordered_map<std::string, std::uint64_t> groups_;
  std::vector<ScriptedInstance> fleet_;
  std::vector<signals::SignalSource*> signal_sources_;
  std::vector<std::int32_t> in_flight_;
  std::vector<std::int64_t> in_flight_tokens_;
  std::vector<char> stale_;
  std::vector<std::optional<std::int64_t>> sent_blocks_;
  std::vector<signals::Adapters> adapters_;
  std::vector<std::optional<signals::Tiers>> tiers_;
  std::vector<std::optional<signals::Prediction>> predictions_;
  std::optional<std::string> adapter_;                    // of the latest request
  std::uint64_t next_content_ = std::uint64_t{1} << 32U;  // of a prompt with scripted blocks
  signals::Sources sources_;
  signals::LocalState local_;
  std::optional<signals::BusyWorkers> busy_;
  std::unique_ptr<signals::PrefixIndex> prefix_index_;
  std::unique_ptr<signals::Outstanding> outstanding_;
  std::vector<InstanceId> sent_to_;  // by request
};

}  // namespace spillway::bindings::testing
