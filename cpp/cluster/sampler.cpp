#include "cluster/sampler.h"

#include <optional>

#include "sim/phase.h"
#include "sim/time.h"

namespace spillway::cluster {

Sampler::Sampler(Context& context) : context_(context) {
  const std::optional<double>& step_s = context.simulation.metrics.timeline_step_s;
  if (!step_s) return;
  step_ = sim::from_seconds(*step_s);
  counts_.resize(context.requests.tenants.size());
}

void Sampler::start() {
  if (!counts_.empty()) {
    context_.events.push({context_.now, sim::Phase::timeline_sample, 0, 0});
  }
}

void Sampler::sample(const metrics::Sample& state, std::span<const metrics::TenantSample> tenants,
                     bool continues) {
  timeline_.samples.push_back(state);
  timeline_.tenants.insert(timeline_.tenants.end(), tenants.begin(), tenants.end());
  auto added = timeline_.tenants.end() - static_cast<std::ptrdiff_t>(tenants.size());
  for (const metrics::TenantSample& counted : counts_) {
    added->submitted = counted.submitted;
    added->shed = counted.shed;
    added->completed = counted.completed;
    ++added;
  }
  if (!continues) return;
  context_.events.push({context_.now + step_, sim::Phase::timeline_sample, 0, 0});
}

}  // namespace spillway::cluster
