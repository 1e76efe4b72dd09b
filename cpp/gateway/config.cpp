#include "gateway/config.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "gateway/limit/limit.h"
#include "sim/schema/codec.h"
#include "sim/value.h"

namespace spillway::gateway {

namespace {

bool any_cost(const Gateway& config, const auto& holds) {
  return std::any_of(config.bands.begin(), config.bands.end(), [&](const Band& band) {
    const Cost* cost = cost_of(band.fairness);
    return cost && holds(*cost);
  });
}

bool any_admission(const Gateway& config, const auto& holds) {
  return std::any_of(config.admission.begin(), config.admission.end(),
                     [&](const Admission& policy) { return std::visit(holds, policy); });
}

bool can_be_moved(const Limit& limit) { return make_limit(limit, {})->setting().has_value(); }

}  // namespace

bool observes(const Admission& policy) {
  return std::visit(
      []<class Config>(const Config&) {
        if constexpr (requires { Config::observes; }) return Config::observes;
        return false;
      },
      policy);
}

const Cost* cost_of(const Fairness& fairness) {
  return std::visit(
      [](const auto& config) -> const Cost* {
        if constexpr (requires { config.cost; }) return &config.cost;
        return nullptr;
      },
      fairness);
}

bool reads_first_tokens(const Gateway& config) {
  const auto source = config.sensor.source;
  return any_limit<DualLimit>(config) ||
         std::any_of(config.admission.begin(), config.admission.end(), observes) ||
         (is_controlled(config) && (source == signals::SensorSource::ttft ||
                                    source == signals::SensorSource::engine_ttft)) ||
         any_cost(config, [](const Cost& cost) { return cost.charge_at == ChargeAt::first_token; });
}
bool reads_prefix_index(const Gateway& config) {
  return any_admission(config,
                       []<class Config>(const Config&) {
                         return requires { Config::reads_prefix_index; };
                       }) ||
         any_cost(config, [](const Cost& cost) { return reads_prefix_index(cost); });
}
bool reads_outstanding(const Gateway& config) {
  return any_admission(
      config, []<class Config>(const Config&) { return requires { Config::reads_outstanding; }; });
}
bool reads_exact_estimate(const Gateway& config) {
  return any_admission(config, [](const auto& policy) {
    if constexpr (requires { policy.reads_exact_estimate(); }) return policy.reads_exact_estimate();
    return false;
  });
}
bool reads_next_choice(const Gateway& config) {
  return any_admission(config, [](const auto& policy) {
    if constexpr (requires { policy.reads_next_choice(); }) return policy.reads_next_choice();
    return false;
  });
}
bool reads_saturation(const Gateway& config) { return any_limit<Saturation>(config); }
bool reads_busy(const Gateway& config) {
  return any_admission(
      config, []<class Config>(const Config&) { return std::is_same_v<Config, BusyThreshold>; });
}
bool has_timeouts(const Gateway& config) {
  return std::any_of(config.bands.begin(), config.bands.end(),
                     [](const Band& band) { return band.queue.timeout_s.has_value(); });
}
bool meters_tokens(const Gateway& config) {
  return any_cost(config, [](const Cost& cost) {
    return cost.charge_at == ChargeAt::token && cost.unit == CostUnit::weighted_tokens;
  });
}

void Gateway::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  const auto at = [&](const char* name) { return sim::join_path(path, name); };
  if (admission.empty()) {
    out.push_back({at("admission"), "[]", "must hold at least one policy, e.g. always_admit"});
  }
  if (bands.empty()) out.push_back({at("bands"), "[]", "must hold at least one band"});
  for (std::size_t i = 0; i < bands.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (bands[i].priority == bands[j].priority) {
        out.push_back({sim::index_path(at("bands"), i) + ".priority",
                       std::to_string(bands[i].priority), "must differ from the other bands'"});
      }
    }
  }
  if (limit.empty()) {
    out.push_back({at("limit"), "[]", "must hold at least one limit, e.g. unlimited"});
  }
  if (dispatch == Dispatch::one_per_attempt && drain_latency_s > 0) {
    out.push_back({at("drain_latency_s"), sim::to_text(drain_latency_s),
                   "must be 0 where dispatch is one_per_attempt: an attempt follows each request "
                   "that joins"});
  }
  if (eviction.max_victims > 0 && !any_limit<Saturation>(*this)) {
    out.push_back({at("eviction.max_victims"), std::to_string(eviction.max_victims),
                   "needs a saturation limit; with any other it must be 0"});
  }
  if (guard.floor > guard.ceiling) {
    out.push_back({at("guard.floor"), sim::to_text(guard.floor),
                   "must be <= guard.ceiling (" + sim::to_text(guard.ceiling) + ")"});
  }
  if (meters_tokens(*this) && replicas > 1 && split != Split::tenant_hash) {
    out.push_back({at("split"), sim::to_text(sim::Value(sim::name_of(split))),
                   "must be tenant_hash where costs are charged at token: instances cannot tell "
                   "which replica sent them what"});
  }
  if (is_controlled(*this) && std::none_of(limit.begin(), limit.end(), can_be_moved)) {
    const auto name = std::visit([](const auto& c) { return std::string(c.kind); }, controller);
    out.push_back({at("controller"), "'" + name + "'",
                   "needs a limit that can be moved, e.g. fixed or worker_budget"});
  }
}

}  // namespace spillway::gateway
