#include "cluster/idle_spans.h"

#include <variant>

namespace spillway::cluster {

namespace {

/// How long it takes until the gateway's metrics of idle instances stay the same. Readings that are
/// renewed when a decision is due depend on the decisions, lost or stale ones on chance, and those
/// of an instance that returns differ from what it reported last.
sim::Time settling_time(const Simulation& simulation) {
  if (has_faults(simulation)) return sim::kForever;
  const signals::Signals& transport = simulation.signals;
  if (std::holds_alternative<signals::Live>(transport)) return sim::Time{0};
  const auto* scraped = std::get_if<signals::Scraped>(&transport);
  if (!scraped || scraped->loss_probability > 0 || scraped->stale_after_s) return sim::kForever;
  return sim::from_seconds(scraped->delay_s + 3 * scraped->period_s + scraped->phase_s);
}

}  // namespace

IdleSpans::IdleSpans(Context& context, bool is_reference)
    : context_(context),
      is_reference_(is_reference),
      settling_time_(settling_time(context.simulation)) {}

bool IdleSpans::has_steady_metrics(const gateway::GatewayCounters& counters) {
  if (counters.present() > 0 || counters.attempts != attempts_before_) {
    attempts_before_ = counters.attempts;
    empty_since_ = context_.now;
  }
  return counters.present() == 0 && context_.now - empty_since_ >= settling_time_;
}

}  // namespace spillway::cluster
