#include "cluster/load_events.h"

#include <algorithm>
#include <variant>

#include "sim/phase.h"
#include "workload/outcome.h"

namespace spillway::cluster {

using sim::InstanceId;
using sim::RequestId;
using sim::Time;

namespace {

signals::WorkerPool pool_of(instance::Role role) {
  switch (role) {
    case instance::Role::prefill:
      return signals::WorkerPool::prefill;
    case instance::Role::decode:
      return signals::WorkerPool::decode;
    case instance::Role::both:
      break;
  }
  return signals::WorkerPool::none;
}

}  // namespace

LoadEvents::LoadEvents(Context& context,
                       std::span<const std::unique_ptr<instance::Instance>> workers,
                       const signals::Scrapes* scrapes)
    : context_(context),
      workers_(workers),
      scrapes_(scrapes),
      is_live_(std::holds_alternative<signals::Live>(context.simulation.signals)) {
  if (!context.follows_loads) return;
  if (const auto* on_read = std::get_if<signals::OnRead>(&context.simulation.signals)) {
    period_ = sim::from_seconds(on_read->period_s);
  }
  last_reads_.resize(workers.size());
  sizes_.reserve(workers.size());
  for (const instance::InstanceGroup& group : context.simulation.instances) {
    for (std::int64_t i = 0; i < group.count; ++i) {
      instance::Instance& worker = *workers[sizes_.size()];
      sizes_.push_back(
          {worker.num_ranks(), worker.rank(0).capacity().block_size_tokens, pool_of(group.role)});
    }
  }
  for (std::int64_t i = 0; i < context.simulation.gateway.replicas; ++i) {
    monitors_.emplace_back(context.simulation.busy_monitor, sizes_, context.requests,
                           context.states);
  }
}

void LoadEvents::add_gateway(const signals::BusyMonitor& in_force) {
  if (!context_.follows_loads) return;
  signals::WorkerMonitor& added =
      monitors_.emplace_back(in_force, sizes_, context_.requests, context_.states);
  added.miss_in_transit(monitors_.front());
}

void LoadEvents::set_thresholds(const signals::BusyMonitor& from) {
  for (signals::WorkerMonitor& monitor : monitors_) monitor.set_thresholds(from);
}

void LoadEvents::start() {
  if (!scrapes_) return;
  for (std::size_t i = 0; i < last_reads_.size(); ++i) schedule_scrape(InstanceId{i});
}

std::optional<InstanceId> LoadEvents::handle(const sim::Event& event) {
  const InstanceId worker{event.tie()};
  LastRead& last = last_reads_[worker.index()];
  if (static_cast<Kind>(event.subject()) == Kind::arrival) {
    arrive(worker);
    return std::nullopt;
  }
  if (is_live_) {
    last.is_due = false;
    if (read(worker)) arrive(worker);
    return std::nullopt;
  }
  const bool is_lost = last.was_lost = scrapes_->is_lost(worker, last.next_scrape++);
  if (!is_lost) {
    read(worker);
    if (scrapes_->delay() == Time{0}) {
      arrive(worker);
    } else {
      push(context_.now + scrapes_->delay(), worker, Kind::arrival);
    }
  }
  return worker;
}

// A scrape may be late by a period.
Time LoadEvents::skip_scrapes(InstanceId worker, Time until) {
  LastRead& last = last_reads_[worker.index()];
  const Time next = scrapes_->time_of(worker, last.next_scrape);
  const Time period = scrapes_->period();
  const std::int64_t scrapes =
      periods_to_skip(next, period, until - scrapes_->delay() - period - period);
  last.next_scrape += scrapes;
  return Time{scrapes * period.ns};
}

void LoadEvents::read_what_is_old() {
  for (std::size_t i = 0; i < last_reads_.size(); ++i) {
    if (context_.now - last_reads_[i].at < period_) continue;
    last_reads_[i].at = context_.now;
    if (read(InstanceId{i})) arrive(InstanceId{i});
  }
}

void LoadEvents::note_sent(signals::WorkerMonitor& monitor, RequestId id, InstanceId worker) {
  monitor.sent(id, worker);
  schedule_live(worker);
}

void LoadEvents::note_first_token(signals::WorkerMonitor& monitor, RequestId id,
                                  InstanceId worker) {
  monitor.first_token(id, worker);
  schedule_live(worker);
}

void LoadEvents::note_finished(signals::WorkerMonitor& monitor, RequestId id, InstanceId worker) {
  monitor.finished(id, worker);
  if (was_rejected(id)) {
    monitor.mark_overloaded(worker, context_.now);
  } else {
    schedule_live(worker);
  }
}

void LoadEvents::sent_to_continue(std::size_t gateway, RequestId id, InstanceId worker) {
  if (monitors_.empty()) return;
  monitors_[gateway].sent_to_continue(id, worker);
  schedule_live(worker);
}

void LoadEvents::finished_continuing(std::size_t gateway, RequestId id, InstanceId worker) {
  if (monitors_.empty()) return;
  monitors_[gateway].finished_continuing(id, worker);
  schedule_live(worker);
}

void LoadEvents::push(Time at, InstanceId worker, Kind kind) {
  context_.events.push({at, sim::Phase::telemetry, worker.value, static_cast<std::uint32_t>(kind)});
}

void LoadEvents::schedule_scrape(InstanceId worker) {
  push(scrapes_->time_of(worker, last_reads_[worker.index()].next_scrape), worker, Kind::reading);
}

void LoadEvents::schedule_live(InstanceId worker) {
  if (!is_live_ || last_reads_[worker.index()].is_due) return;
  last_reads_[worker.index()].is_due = true;
  push(context_.now, worker, Kind::reading);
}

bool LoadEvents::read(InstanceId id) {
  instance::Instance& worker = *workers_[id.index()];
  // What a silent worker reported last stays known.
  if (instance::Fallible* fallible = worker.fallible();
      fallible && fallible->reported().is_silent()) {
    return false;
  }
  readings_.clear();
  if (context_.simulation.busy_monitor.track_output_blocks) worker.note_emitted(context_.now);
  for (std::size_t i = 0; i < worker.num_ranks(); ++i) {
    instance::Instance& rank = worker.rank(i);
    readings_.push_back({.signal = rank.read(context_.now), .capacity = rank.capacity()});
  }
  for (signals::WorkerMonitor& monitor : monitors_) monitor.measure(id, readings_);
  return true;
}

void LoadEvents::arrive(InstanceId worker) {
  for (signals::WorkerMonitor& monitor : monitors_) monitor.arrive(worker);
}

// Whether the ingress of its worker rejected the request.
bool LoadEvents::was_rejected(RequestId id) const {
  const workload::ReasonCode reason = context_.states.reason[id.index()];
  return context_.states.outcome[id.index()] == workload::Outcome::rejected &&
         reason.stage == workload::Stage::ingress &&
         reason.index >= instance::InstanceGroup::reasons.size();
}

}  // namespace spillway::cluster
