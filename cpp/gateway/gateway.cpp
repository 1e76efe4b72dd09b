#include "gateway/gateway.h"

#include <algorithm>

namespace spillway::gateway {

using sim::Phase;
using sim::RequestId;
using sim::Time;

void Gateway::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (admission.empty()) {
    out.push_back({sim::join_path(path, "admission"), "[]",
                   "must hold at least one policy, e.g. always_admit"});
  }
  if (bands.empty())
    out.push_back({sim::join_path(path, "bands"), "[]", "must hold at least one band"});
  for (std::size_t i = 0; i < bands.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (bands[i].priority == bands[j].priority) {
        out.push_back({sim::index_path(sim::join_path(path, "bands"), i) + ".priority",
                       std::to_string(bands[i].priority), "must differ from the other bands'"});
      }
    }
  }
}

Pipeline::Pipeline(const Gateway& config, const workload::RequestTable& requests,
                   workload::Journal& journal, sim::EventQueue& events, std::uint64_t seed)
    : requests_(requests),
      journal_(journal),
      events_(events),
      seed_(seed),
      routing_latency_(sim::from_seconds(config.routing_latency_s)),
      limit_(std::visit([](const auto& c) { return make(c); }, config.limit)) {
  for (const Admission& policy : config.admission) {
    chain_.push_back({std::visit([](const auto& c) { return make(c); }, policy),
                      workload::first_reason(std::type_identity<Admission>{}, policy.index())});
  }
  std::vector<double> weights;
  for (const auto& tenant : requests.tenants) weights.push_back(tenant.weight);
  for (const Band& band : config.bands) {
    bands_.push_back({band.priority,
                      std::visit([&](const auto& c) { return make(c, weights); }, band.fairness),
                      TenantQueues(requests.tenants.size())});
  }
  std::sort(bands_.begin(), bands_.end(),
            [](const BandState& a, const BandState& b) { return a.priority > b.priority; });
}

bool Pipeline::admit(RequestId id, const signals::View& view, Time now) {
  const signals::RequestView request(requests_, id);
  sim::Draws draws(seed_, sim::Stream::admission, requests_.row(id));
  for (const Chain& link : chain_) {
    const Verdict verdict = link.policy->decide(request, view, now, draws);
    if (verdict.admitted) continue;
    ++books_.rejected;
    journal_.outcome[id.index()] = workload::Outcome::rejected;
    journal_.reason[id.index()] = {workload::Stage::admission,
                                   static_cast<std::uint8_t>(link.first_reason + verdict.reason)};
    return false;
  }
  for (const Chain& link : chain_) link.policy->commit(request, now);

  ++books_.admitted;
  journal_.admitted[id.index()] = now;
  journal_.outcome[id.index()] = workload::Outcome::queued;
  BandState& band = band_of(id);
  const sim::TenantId tenant{requests_.tenant(id)};
  band.queues.push(tenant, {.request = id, .entered = now});
  band.fairness->joined(tenant, band.queues, now);
  return true;
}

Pipeline::BandState& Pipeline::band_of(RequestId id) {
  const std::int64_t priority = requests_.class_of(id).priority;
  for (BandState& band : bands_) {
    if (priority >= band.priority) return band;
  }
  return bands_.back();
}

void Pipeline::drain(Time now) {
  for (BandState& band : bands_) {
    while (dispatch_from(band, now)) {
    }
    // A blocked band blocks the bands below it: their requests are less important.
    if (band.queues.size() > 0) return;
  }
}

bool Pipeline::dispatch_from(BandState& band, Time now) {
  if (band.queues.size() == 0) return false;
  struct Permission final : FairnessPolicy::MayStart {
    const Pipeline& pipeline;
    const TenantQueues& queues;
    Time now;
    Permission(const Pipeline& p, const TenantQueues& q, Time t) : pipeline(p), queues(q), now(t) {}
    bool operator()(sim::TenantId flow) const override {
      return pipeline.limit_->may_start({pipeline.requests_, queues.head(flow).request}, now);
    }
    bool anyone() const override { return pipeline.limit_->is_open(now); }
  };
  const auto flow = band.fairness->next(band.queues, Permission(*this, band.queues, now), now);
  if (!flow) return false;

  const RequestId id = band.queues.pop(*flow);
  band.fairness->dispatched(*flow, band.queues, now);
  limit_->started({requests_, id}, now);
  ++books_.dispatched;
  journal_.dispatched[id.index()] = now;
  journal_.outcome[id.index()] = workload::Outcome::in_transit;
  events_.push({now + routing_latency_, Phase::routing, requests_.row(id), id.value});
  return true;
}

bool Pipeline::release(RequestId id, Time now) {
  ++books_.ended;
  const signals::RequestView request(requests_, id);
  limit_->ended(request, now);
  for (const Chain& link : chain_) link.policy->finished(request, now);
  return queued() > 0;
}

std::size_t Pipeline::queued() const {
  std::size_t total = 0;
  for (const BandState& band : bands_) total += band.queues.size();
  return total;
}

}  // namespace spillway::gateway
