#include "cluster/sampler.h"

#include "sim/phase.h"
#include "sim/time.h"

namespace spillway::cluster {

Sampler::Sampler(Context& context) : context_(context) {
  if (context.simulation.metrics.timeline_step_s) {
    counts_.resize(context.requests.tenants.size());
  }
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
  const sim::Time step = sim::from_seconds(*context_.simulation.metrics.timeline_step_s);
  context_.events.push({context_.now + step, sim::Phase::timeline_sample, 0, 0});
}

}  // namespace spillway::cluster
