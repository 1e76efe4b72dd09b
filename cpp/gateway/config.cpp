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

// A limit written in Python may not be imported yet: a run finds out.
bool can_be_moved(const Limit& limit) {
  return std::holds_alternative<PythonLimit>(limit) ||
         make_limit(limit, {}, {})->setting().has_value();
}

}  // namespace

bool observes(const Admission& policy) {
  return std::visit(
      []<class Config>(const Config& config) {
        if constexpr (requires { config.observes(); }) {
          return config.observes();
        } else if constexpr (requires { Config::observes; }) {
          return Config::observes;
        } else {
          return false;
        }
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

signals::Needs needs_of(const Gateway& config) {
  signals::Needs all = signals::needs_of(config.admission) | signals::needs_of(config.limit) |
                       signals::needs_of(config.usage_limit);
  for (const Band& band : config.bands) {
    all = all | signals::needs_of(band.fairness);
    all.output_lengths = all.output_lengths || band.queue.ordering == Ordering::shortest_output;
    if (const Cost* cost = cost_of(band.fairness)) all = all | cost->needs();
  }
  if (is_controlled(config)) {
    all = all | signals::needs_of(config.controller) | config.sensor.needs();
  }
  if (std::any_of(config.admission.begin(), config.admission.end(), observes)) {
    all.first_tokens = true;
  }
  return all;
}
bool has_saturation_limit(const Gateway& config) {
  return signals::needs_of(config.limit).fleet_signals;
}
sim::Time shortest_timeout(const Gateway& config, std::span<const workload::SloClass> classes) {
  sim::Time shortest = sim::kForever;
  const auto consider = [&](const std::optional<double>& timeout_s) {
    if (timeout_s) shortest = std::min(shortest, sim::from_seconds(*timeout_s));
  };
  for (const Band& band : config.bands) {
    consider(band.queue.timeout_s);
    consider(band.queue.timeout_without_servers_s);
  }
  for (const workload::SloClass& slo_class : classes) consider(slo_class.queue_timeout_s);
  return shortest;
}
bool counts_idle_cycles(const Gateway& config) {
  if (config.dispatch != Dispatch::one_per_cycle) return false;
  return std::holds_alternative<SoftReflective>(config.usage_limit) ||
         std::ranges::any_of(config.bands, [](const Band& band) {
           return std::holds_alternative<TenantRoundRobin>(band.fairness);
         });
}
bool is_controlled(const Gateway& config) {
  return std::visit(
      []<class Config>(const Config&) {
        if constexpr (requires { Config::moves_limits; }) return Config::moves_limits;
        return true;
      },
      config.controller);
}
bool never_holds(const Gateway& config, std::span<const workload::Tenant> tenants) {
  const bool waits = config.admission_latency_s > 0 || config.drain_latency_s > 0 ||
                     config.routing_latency_s > 0 || config.decision_latency_s > 0 ||
                     config.dispatch != Dispatch::all;
  const bool is_unlimited = std::ranges::all_of(
      config.limit, [](const Limit& limit) { return std::holds_alternative<Unlimited>(limit); });
  const bool has_plain_queues = std::ranges::all_of(config.bands, [](const Band& band) {
    return !band.max_requests && !band.queue.max_requests && !band.queue.timeout_s &&
           !band.queue.timeout_without_servers_s && !band.queue.codel_target_s &&
           std::holds_alternative<GlobalFifo>(band.fairness);
  });
  const bool has_bound = config.max_queued || std::ranges::any_of(tenants, [](const auto& tenant) {
                           return tenant.queue_max.has_value();
                         });
  return !waits && is_unlimited && has_plain_queues && !has_bound;
}

bool may_stop_others(const Gateway& config) {
  const bool has_own_limit = std::ranges::any_of(config.limit, [](const Limit& limit) {
    return std::holds_alternative<PerTenant>(limit) || std::holds_alternative<GroupLimit>(limit);
  });
  const bool is_opaque = std::ranges::any_of(config.limit, [](const Limit& limit) {
    return std::holds_alternative<PythonLimit>(limit) || std::holds_alternative<Saturation>(limit);
  });
  const bool waits_in_turn = std::ranges::any_of(config.bands, [](const Band& band) {
    const auto* drr = std::get_if<DeficitRoundRobin>(&band.fairness);
    return drr && drr->semantics == DrrSemantics::verbatim;
  });
  return has_own_limit && !is_opaque && waits_in_turn;
}

sim::Violation nothing_to_move(const Gateway& config, const std::string& path) {
  const auto name =
      std::visit([](const auto& c) { return std::string(c.kind); }, config.controller);
  return {sim::join_path(path, "controller"), "'" + name + "'",
          "requires a limit that can be moved, e.g. fixed or worker_budget"};
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
                       std::to_string(bands[i].priority),
                       "must differ from the priorities of the other bands"});
      }
    }
  }
  if (limit.empty()) {
    out.push_back({at("limit"), "[]", "must hold at least one limit, e.g. unlimited"});
  }
  if (dispatch != Dispatch::all && drain_latency_s > 0) {
    out.push_back({at("drain_latency_s"), sim::to_text(drain_latency_s),
                   "must be 0 if dispatch is " + std::string(sim::name_of(dispatch)) +
                       ", which attempts a dispatch for each request that joins"});
  }
  if (eviction.max_victims > 0 && !has_saturation_limit(*this)) {
    out.push_back({at("eviction.max_victims"), std::to_string(eviction.max_victims),
                   "must be 0 without a saturation limit"});
  }
  if (guard.floor > guard.ceiling) {
    out.push_back({at("guard.floor"), sim::to_text(guard.floor),
                   "must be <= guard.ceiling (" + sim::to_text(guard.ceiling) + ")"});
  }
  if (needs_of(*this).tokens_by_group && replicas > 1 && split != Split::tenant_hash) {
    out.push_back({at("split"), sim::to_text(sim::Value(sim::name_of(split))),
                   "must be tenant_hash if costs are charged at token, because instances do not "
                   "know which replica sent a request"});
  }
  if (is_controlled(*this) && std::none_of(limit.begin(), limit.end(), can_be_moved)) {
    out.push_back(nothing_to_move(*this, path));
  }
}

}  // namespace spillway::gateway
