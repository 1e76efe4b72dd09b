#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "signals/prefix_index.h"
#include "signals/probe.h"
#include "signals/scrapes.h"
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

 private:
  const workload::RequestTable* requests_;
  sim::RequestId id_;
};

/// What a decision may see of the fleet: values with their ages, never the truth. A value is only
/// read if it is asked for. Valid during the decision it was made for.
class View {
 public:
  /// `stored` holds past readings; where it is empty, every value is read when it is asked for.
  /// `scrapes`: null unless the instances are scraped; `index`: null unless some policy reads it.
  View(std::span<Probe* const> probes, std::span<const InstanceSignal> stored, Scrapes* scrapes,
       std::span<const std::int32_t> in_flight, PrefixIndex* index, sim::Time now)
      : probes_(probes),
        stored_(stored),
        scrapes_(scrapes),
        in_flight_(in_flight),
        index_(index),
        now_(now) {}

  std::size_t size() const { return in_flight_.size(); }
  /// As reported, possibly old.
  InstanceSignal instance(std::size_t i) const {
    if (!stored_.empty()) return stored_[i];
    if (scrapes_) return scrapes_->seen(sim::InstanceId{i}, *probes_[i], now_);
    return probes_[i]->read(now_);
  }
  /// Requests routed there and not yet finished: the router's own count, always fresh.
  std::int32_t in_flight(std::size_t i) const { return in_flight_[i]; }
  Occupancy occupancy(std::size_t i) const {
    if (stored_.empty() && !scrapes_) return probes_[i]->occupancy();
    const InstanceSignal seen = instance(i);
    return {seen.waiting, seen.running};
  }
  /// Share of the prompt's full blocks, from the first on, that was sent there before, by the
  /// gateway's own record; 0 for a prompt of less than a block.
  double prefix_match(const RequestView& request, std::size_t i) const {
    const std::int64_t blocks = index_->prompt_blocks(request.id());
    if (blocks == 0) return 0;
    return static_cast<double>(index_->matched_blocks(request.id(), i)) /
           static_cast<double>(blocks);
  }
  /// Blocks of the prompt that the instance really holds, as events of its KV memory tell at once.
  std::int64_t cached_blocks(const RequestView& request, std::size_t i) const {
    return probes_[i]->cached_blocks(request.id(), now_);
  }
  /// Waiting + running + in flight. Requests that the instance reports count twice, as in BLIS's
  /// EffectiveLoad.
  std::int64_t effective_load(std::size_t i) const {
    const Occupancy reported = occupancy(i);
    return std::int64_t{reported.waiting} + reported.running + in_flight_[i];
  }

 private:
  std::span<Probe* const> probes_;
  std::span<const InstanceSignal> stored_;
  Scrapes* scrapes_;
  std::span<const std::int32_t> in_flight_;
  PrefixIndex* index_;
  sim::Time now_;
};

}  // namespace spillway::signals
