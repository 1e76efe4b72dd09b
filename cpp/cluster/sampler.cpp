#include "cluster/sampler.h"

#include <optional>

#include "sim/phase.h"
#include "sim/time.h"

namespace spillway::cluster {

Sampler::Sampler(Context& context) : context_(context) {
  if (context.counts_tenants) counts_.resize(context.requests.tenants.size());
  const std::optional<double>& step_s = context.simulation.metrics.timeline_step_s;
  if (step_s) step_ = sim::from_seconds(*step_s);
}

void Sampler::start() {
  if (step_.ns > 0) {
    context_.events.push({context_.now, sim::Phase::timeline_sample, 0, 0});
  }
}

void Sampler::sample(const metrics::Sample& state, std::span<const metrics::TenantSample> tenants,
                     bool continues) {
  timeline_.samples.push_back(state);
  timeline_.tenants.insert(timeline_.tenants.end(), tenants.begin(), tenants.end());
  add_to(std::span(timeline_.tenants).last(tenants.size()));
  if (!continues) return;
  context_.events.push({context_.now + step_, sim::Phase::timeline_sample, 0, 0});
}

void Sampler::add_to(std::span<metrics::TenantSample> tenants) const {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    tenants[i].submitted = counts_[i].submitted;
    tenants[i].shed = counts_[i].shed;
    tenants[i].completed = counts_[i].completed;
    tenants[i].good = counts_[i].good;
  }
}

}  // namespace spillway::cluster
