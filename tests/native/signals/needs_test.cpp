// The needs of a run's policies are found at every place of a policy.
#include "signals/needs.h"

#include <array>
#include <bit>
#include <string>
#include <utility>
#include <variant>

#include "check.h"
#include "gateway/config.h"
#include "gateway/limit/limit.h"
#include "router/router.h"

using namespace spillway;
using gateway::Gateway;
using signals::Needs;

namespace {

// Each alternative with its default settings.
template <class Variant>
void for_each_alternative(const auto& action) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (action(std::variant_alternative_t<i, Variant>{}), ...);
  }(std::make_index_sequence<std::variant_size_v<Variant>>{});
}

// `found`: the needs of a configuration with the alternative, which states them.
template <class Variant>
void check_each(const auto& found) {
  for_each_alternative<Variant>([&](const auto& policy) {
    check(found(policy) == signals::needs_of(policy), std::string(policy.kind));
  });
}

Gateway admitting(const gateway::Admission& policy) {
  Gateway config;
  config.admission.push_back(policy);
  return config;
}
Gateway sharing_by(const gateway::Fairness& fairness) {
  Gateway config;
  config.bands.push_back({.priority = 1, .fairness = fairness});
  return config;
}
Gateway charging(const gateway::Cost& cost) {
  return sharing_by(gateway::StartTimeFair{.cost = cost});
}
Gateway controlled(const gateway::Controller& controller, signals::SensorSource source) {
  Gateway config;
  config.controller = controller;
  config.sensor.source = source;
  return config;
}

void each_field_survives_a_union() {
  using Fields = std::array<bool, sizeof(Needs)>;
  for (std::size_t i = 0; i < sizeof(Needs); ++i) {
    Fields fields{};
    fields[i] = true;
    const auto needs = std::bit_cast<Needs>(fields);
    check((needs | Needs{}) == needs && (Needs{} | needs) == needs,
          "a field of " + std::to_string(i));
    check((needs | needs) == needs && !(needs == Needs{}), "a field of " + std::to_string(i));
  }
}

void needs_of_each_admission_policy_are_found() {
  for_each_alternative<gateway::Admission>([](const auto& policy) {
    Needs expected = signals::needs_of(policy);
    expected.first_tokens = expected.first_tokens || gateway::observes(policy);
    check(needs_of(admitting(policy)) == expected, std::string(policy.kind));
  });
}

void needs_may_depend_on_settings() {
  gateway::PredictiveTtft policy;
  policy.instance = gateway::PricedInstance::routed;
  check(needs_of(admitting(policy)).next_choice, "of the routed instance");
  check(!needs_of(admitting(policy)).exact_estimate, "it is estimated");
  policy = {.estimator = gateway::TtftEstimator::exact};
  check(needs_of(admitting(policy)).exact_estimate, "it is known");
  check(!needs_of(admitting(policy)).next_choice, "of the best instance");
}

void needs_of_each_limit_are_found() {
  const auto found = [](const auto& policy) {
    Gateway config;
    config.limit.push_back(policy);
    check(has_saturation_limit(config) == signals::needs_of(policy).fleet_signals, "saturation");
    return needs_of(config);
  };
  check_each<gateway::Limit>(found);
}

// A limit that depends on first tokens must declare that need to be notified of them.
void limits_that_first_tokens_free_need_them() {
  for_each_alternative<gateway::Limit>([](const auto& policy) {
    if (policy.kind == "python") return;  // it may, and has no code here
    const bool is_freed = gateway::make_limit(policy, {}, {})->frees_at_first_token();
    check(is_freed == signals::needs_of(policy).first_tokens, std::string(policy.kind));
  });
}

void costs_need_what_they_are_made_of() {
  using gateway::ChargeAt;
  using gateway::CostUnit;
  check(needs_of(charging({.unit = CostUnit::uncached_tokens})) == Needs{.prefix_index = true},
        "uncached tokens");
  check(needs_of(charging({.charge_at = ChargeAt::first_token})) == Needs{.first_tokens = true},
        "first token");
  check(needs_of(charging({.unit = CostUnit::weighted_tokens, .charge_at = ChargeAt::token})) ==
            Needs{.tokens_by_group = true},
        "by token");
  check(needs_of(charging({.unit = CostUnit::requests, .charge_at = ChargeAt::token})) == Needs{},
        "requests have no tokens to charge for");
}

void fairness_policies_need_what_their_costs_do() {
  const gateway::Cost uncached{.unit = gateway::CostUnit::uncached_tokens};
  for_each_alternative<gateway::Fairness>([&](auto policy) {
    bool has_cost = false;
    if constexpr (requires { policy.cost; }) {
      policy.cost = uncached;
      has_cost = true;
    }
    check(needs_of(sharing_by(policy)).prefix_index == has_cost, std::string(policy.kind));
  });
}

void needs_of_each_controller_are_found() {
  const auto found = [](const auto& policy) {
    const Gateway config = controlled(policy, signals::SensorSource::e2e);
    check(is_controlled(config) == (policy.kind != "static"), "static limits stay");
    return needs_of(config);
  };
  check_each<gateway::Controller>(found);
}

void sensors_need_their_source_where_a_controller_reads_them() {
  using signals::SensorSource;
  const auto needs = [](SensorSource source) {
    return needs_of(controlled(gateway::Aimd{}, source));
  };
  check(needs(SensorSource::ttft) == Needs{.first_tokens = true}, "ttft");
  check(needs(SensorSource::engine_ttft) == Needs{.first_tokens = true}, "engine_ttft");
  check(needs(SensorSource::queue_delay) == Needs{}, "queue_delay");
  check(needs(SensorSource::hit_rate) == Needs{.fleet_signals = true}, "hit_rate");
  check(needs(SensorSource::kv_utilization) == Needs{.fleet_signals = true}, "kv_utilization");
  check(needs_of(controlled(gateway::StaticLimit{}, SensorSource::ttft)) == Needs{}, "no reader");
}

void needs_of_a_router_are_found() {
  check(needs_of(router::Router(router::RoundRobin{})) == Needs{}, "none");
  check(needs_of(router::Router(router::Weighted{})) == Needs{.prefix_index = true}, "weighted");
  check(needs_of(router::Router(router::KvCost{})) == Needs{.first_tokens = true}, "kv_cost");
  check(needs_of(router::Router(router::KvCost{.overlap = router::Overlap::sent})).prefix_index,
        "by what was sent");
  for_each_alternative<router::Router>([](const auto& config) {
    check(rates_ranks(config) == (config.kind == "kv_cost"), std::string(config.kind));
  });
}

void needs_of_each_part_of_a_weighted_router_are_found() {
  const auto found = [](auto router::Weighted::* list) {
    return [list](const auto& part) {
      router::Weighted config{.filters = {}, .scorers = {router::QueueDepth{}}};
      if constexpr (requires { (config.*list).push_back(part); }) {
        (config.*list).push_back(part);
      } else {
        config.*list = part;
      }
      return needs_of(router::Router(config));
    };
  };
  check_each<router::AnyFilter>(found(&router::Weighted::filters));
  check_each<router::AnyScorer>(found(&router::Weighted::scorers));
  check_each<router::AnyPicker>(found(&router::Weighted::picker));
}

}  // namespace

CASES(each_field_survives_a_union, needs_of_each_admission_policy_are_found,
      needs_may_depend_on_settings, needs_of_each_limit_are_found,
      limits_that_first_tokens_free_need_them, costs_need_what_they_are_made_of,
      fairness_policies_need_what_their_costs_do, needs_of_each_controller_are_found,
      sensors_need_their_source_where_a_controller_reads_them, needs_of_a_router_are_found,
      needs_of_each_part_of_a_weighted_router_are_found);
