#include "signals/signal_store.h"

#include <algorithm>
#include <utility>

namespace spillway::signals {

SignalStore::SignalStore(const Signals& transport, std::vector<SignalSource*> instances,
                         Scrapes* scrapes, const LoadChanges* load_changes)
    : instances_(std::move(instances)) {
  if (const auto* on_read = std::get_if<OnRead>(&transport)) {
    period_ = sim::from_seconds(on_read->period_s);
    readings_.resize(instances_.size());
  }
  sources_ = {.instances = instances_,
              .stored = readings_,
              .scrapes = scrapes,
              .load_changes = load_changes,
              .has_ranks = std::ranges::any_of(
                  instances_, [](const SignalSource* source) { return source->num_ranks() > 1; })};
}

InstanceSignal SignalStore::seen(sim::InstanceId id, sim::Time now) {
  SignalSource& source = *instances_[id.index()];
  if (sources_.scrapes) return sources_.scrapes->seen(id, source, now);
  const bool is_stored = !readings_.empty() && now - readings_[id.index()].measured < period_;
  return is_stored ? readings_[id.index()] : source.read(now);
}

void SignalStore::renew(sim::Time now) {
  for (std::size_t i = 0; i < readings_.size(); ++i) {
    if (now - readings_[i].measured >= period_) readings_[i] = instances_[i]->read(now);
  }
}

}  // namespace spillway::signals
