#include "gateway/control_loop.h"

#include <limits>

#include "signals/needs.h"
#include "sim/names.h"

namespace spillway::gateway {

using signals::SensorSource;
using sim::Time;
using workload::Outcome;

ControlLoop::ControlLoop(const Gateway& config, LimitPolicy& limit,
                         const workload::RequestTable& requests, std::uint16_t replica,
                         std::uint64_t seed)
    : limit_(limit),
      replica_(replica),
      source_(config.sensor.source),
      scope_(config.sensor.scope),
      tenant_(sim::index_of_name(requests.tenants, config.sensor.tenant)),
      slo_class_(sim::index_of_name(requests.slo_classes, config.sensor.slo_class)),
      samples_refusals_(config.sensor.includes_refusals),
      reads_fleet_((config.sensor.needs() | signals::needs_of(config.controller)).fleet_signals),
      sensor_(config.sensor, requests.tenants.size()),
      governor_(config.guard, config.controller, limit.setting().value_or(0), seed) {}

void ControlLoop::ended(const signals::RequestView& request, Outcome outcome, Time dispatched,
                        Time now) {
  const Time e2e = now - request.arrival();
  // A dispatched request can only be rejected by a worker.
  if (samples_refusals_ && outcome == Outcome::rejected) {
    measure(SensorSource::ttft, request, e2e, dispatched, now);
    measure(SensorSource::e2e, request, e2e, dispatched, now);
  }
  if (outcome == Outcome::completed) {
    const Time per_token{e2e.ns / request.answered_tokens()};
    measure(SensorSource::e2e, request, e2e, dispatched, now);
    measure(SensorSource::e2e_per_token, request, per_token, dispatched, now);
  }
}

void ControlLoop::record(const signals::RequestView& request, double value_s, Time dispatched,
                         Time now) {
  sensor_.record(sim::TenantId{request.tenant()}, value_s, now);
  governor_.sample(value_s, dispatched, now);
}

void ControlLoop::tick(std::int64_t in_flight, std::int64_t queued, const signals::View* view,
                       Time now) {
  const signals::Aggregate measured = sensor_.read(now);
  Reading reading{.value = measured.value,
                  .samples = measured.samples,
                  .in_flight = in_flight,
                  .queued = queued,
                  .max_in_flight = max_in_flight_,
                  .shed = shed_};
  if (reads_fleet_) read_fleet(*view, reading);
  const ControlStep step = governor_.tick(reading, now);
  if (step.limit != limit_.setting()) limit_.resize(step.limit);
  log_.push_back({now, replica_, step.action, reading.value, reading.samples,
                  limit_.setting().value_or(0),
                  limit_.permits().value_or(std::numeric_limits<double>::quiet_NaN()), in_flight});
  const bool is_calm = in_flight == 0 && queued == 0 && max_in_flight_ == 0 && shed_ == 0;
  settled_until_ = is_calm && measured.samples == 0 ? step.settled_until : Time{0};
  max_in_flight_ = in_flight;
  shed_ = 0;
}

void ControlLoop::change(const Gateway& from, const Gateway& to) {
  governor_.change(to.guard, from.controller, to.controller);
  if (const auto limit = limit_.setting(); limit && *limit != governor_.limit()) {
    governor_.resize(*limit);
  }
}

void ControlLoop::read_fleet(const signals::View& view, Reading& reading) {
  std::int64_t hits = 0;
  std::int64_t lookups = 0;
  for (std::size_t i = 0; i < view.size(); ++i) {
    const signals::InstanceSignal seen = view.instance(i);
    reading.kv_utilization += seen.kv_utilization / static_cast<double>(view.size());
    hits += seen.prefix_hits;
    lookups += seen.prefix_lookups;
  }
  // Lookups since the last tick.
  const std::int64_t looked_up = lookups - prefix_lookups_;
  if (looked_up > 0) {
    hit_rate_ = static_cast<double>(hits - prefix_hits_) / static_cast<double>(looked_up);
    prefix_hits_ = hits;
    prefix_lookups_ = lookups;
  }
  reading.hit_rate = hit_rate_;
  if (source_ == SensorSource::kv_utilization) reading.value = reading.kv_utilization;
  if (source_ == SensorSource::hit_rate) reading.value = reading.hit_rate;
}

}  // namespace spillway::gateway
