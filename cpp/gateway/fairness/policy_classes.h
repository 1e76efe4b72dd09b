#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::gateway {

class FairnessPolicy;

/// Order of the requests of a class.
enum class ClassOrder : std::uint8_t { fcfs, lcfs, wspt };

/// The requests of one family with a number of uncached prompt tokens.
struct PolicyClass {
  std::string name = "default";
  std::string family = "default";
  std::int64_t min_uncached_tokens = 0;
  std::int64_t quantum_tokens = 1;
  ClassOrder order = ClassOrder::fcfs;
  std::optional<std::int64_t> max_requests_per_worker;
  std::optional<std::int64_t> max_prompt_tokens_per_worker;

  static constexpr std::string_view type_name = "PolicyClass";
  static constexpr std::string_view doc =
      "The requests of one family with at least a number of prompt tokens that no instance holds.";
  static void fields(auto field) {
    field("name", &PolicyClass::name, "Name.");
    field("family", &PolicyClass::family, "Family of its requests.");
    field("min_uncached_tokens", &PolicyClass::min_uncached_tokens,
          "Least number of prompt tokens that no instance holds. A request joins the class of its "
          "family with the largest number that it reaches; otherwise that with the smallest.")
        .unit("tokens")
        .range(sim::between(0, 1e9));
    field("quantum_tokens", &PolicyClass::quantum_tokens,
          "Uncached prompt tokens that the class may dispatch in each round.")
        .unit("tokens")
        .range(sim::between(1, 1e9))
        .log_search(1, 10000);
    field("order", &PolicyClass::order,
          "Order of its requests, after their strict priority. fcfs; lcfs: the latest first; wspt: "
          "the fewest uncached prompt tokens first. A priority_jump_s counts as seconds of earlier "
          "arrival (of later arrival with lcfs), with wspt as weight.");
    field("max_requests_per_worker", &PolicyClass::max_requests_per_worker,
          "Number of its waiting requests per instance from which on more are rejected; unset: "
          "none is.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(1, 64);
    field("max_prompt_tokens_per_worker", &PolicyClass::max_prompt_tokens_per_worker,
          "Number of their prompt tokens per instance from which on more are rejected; unset: none "
          "is.")
        .unit("tokens")
        .range(sim::between(1, 1e12))
        .log_search(1000, 1e6);
  }
};

/// What the requests of an SLO class ask for.
struct PolicyRequest {
  std::string slo_class = "standard";
  std::string family = "default";
  std::int64_t strict_priority = 0;
  double priority_jump_s = 0;

  static constexpr std::string_view type_name = "PolicyRequest";
  static constexpr std::string_view doc = "What the requests of an SLO class ask for.";
  static void fields(auto field) {
    field("slo_class", &PolicyRequest::slo_class, "Name of the SLO class.");
    field("family", &PolicyRequest::family,
          "Family of policy classes; an unknown one is that of the first class.");
    field("strict_priority", &PolicyRequest::strict_priority,
          "Requests of higher strict priority precede others of their policy class.")
        .dimensionless()
        .range(sim::between(-1000, 1000));
    field("priority_jump_s", &PolicyRequest::priority_jump_s,
          "Advantage within the policy class; a negative one counts as 0.")
        .unit("s")
        .range(sim::between(-1e6, 1e6));
  }
};

/// The queue in NVIDIA Dynamo's router: classes by family and uncached tokens.
struct PolicyClasses {
  std::vector<PolicyClass> classes{PolicyClass{}};
  std::vector<PolicyRequest> requests;

  static constexpr std::string_view kind = "policy_classes", type_name = "PolicyClasses";
  static constexpr std::string_view doc =
      "The queue in the router of NVIDIA Dynamo (from 1.2 on): requests are classed by family and "
      "uncached prompt tokens, regardless of tenants; classes take turns by deficit round robin on "
      "these tokens (at least 1), and the class just served goes on while its deficit lasts. "
      "Usually with the limit prefill_busy. The ordering of the band's queue has no effect.";
  static void fields(auto field) {
    field("classes", &PolicyClasses::classes, "Policy classes, in the order of their turns.");
    field("requests", &PolicyClasses::requests,
          "What the requests of SLO classes ask for; others are of the family of the first class.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
};

std::unique_ptr<FairnessPolicy> make(const PolicyClasses& config, std::span<const double> weights);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::ClassOrder> {
  static constexpr std::array<std::string_view, 3> names{"fcfs", "lcfs", "wspt"};
};
