#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/error.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/arrivals/policies.h"
#include "workload/lengths/policies.h"
#include "workload/limits.h"
#include "workload/rate_profile.h"

namespace spillway::workload {

/// One source of requests: a tenant's application with its own arrivals and lengths.
struct Client {
  std::string name = "client";
  std::string tenant = "default";
  std::string slo_class = "standard";
  double rate_fraction = 1;
  std::optional<double> requests_per_s;
  double start_s = 0;
  std::optional<double> duration_s;
  std::optional<std::int64_t> num_requests;
  std::vector<RatePoint> rate_profile;
  std::optional<double> rate_period_s;
  Arrivals arrivals = Poisson{};
  Lengths input_tokens = Fixed{512};
  Lengths output_tokens = Fixed{128};
  double length_correlation = 0;
  std::optional<std::int64_t> max_tokens;
  std::string model;
  std::string prefix_group;
  std::int64_t prefix_tokens = 0;

  static constexpr std::string_view type_name = "Client";
  static constexpr std::string_view doc =
      "One source of requests: a tenant's application with its own arrivals and lengths.";
  static void fields(auto field) {
    field("name", &Client::name, "Name of the client; must be unique.");
    field("tenant", &Client::tenant, "Tenant to which its requests belong.");
    field("slo_class", &Client::slo_class, "Class of its requests.");
    field("rate_fraction", &Client::rate_fraction,
          "Its share of the workload's request rate, relative to the other clients that have no "
          "requests_per_s of their own.")
        .dimensionless()
        .range(sim::more_than(0));
    field("requests_per_s", &Client::requests_per_s,
          "Mean arrival rate of this client alone; the workload's rate is then shared by the other "
          "clients. Unset: the client gets its rate_fraction of the workload's rate.")
        .unit("requests/s")
        .range(sim::positive_up_to(1e9))
        .log_search(0.1, 10000);
    field("start_s", &Client::start_s, "Start time; the first gap counts from here.")
        .unit("s")
        .range(sim::between(0, sim::kLongestSpan_s));
    field("duration_s", &Client::duration_s,
          "The client sends no request at or after start_s + duration_s. Unset: it continues until "
          "the workload ends.")
        .unit("s")
        .range(sim::positive_up_to(sim::kLongestSpan_s));
    field("num_requests", &Client::num_requests,
          "Maximum number of requests of this client; unset: unlimited.")
        .unit("requests")
        .range(sim::between(1, 1e9));
    field("rate_profile", &Client::rate_profile,
          "The rate over time, as points between which it is linear: ramps, spikes, drains, days. "
          "Before the first point and after the last one it is constant; two points at one time "
          "are a step. It sets the pace of the arrival process: at factor 2, gaps and the times in "
          "states are half as long. Empty: constant.");
    field("rate_period_s", &Client::rate_period_s,
          "The profile repeats after this time, e.g. 86400 for a day; from the last point the rate "
          "is linear to the first one of the next period. Unset: it does not repeat.")
        .unit("s")
        .range(sim::between(1e-3, sim::kLongestSpan_s));
    field("arrivals", &Client::arrivals, "When its requests arrive.");
    field("input_tokens", &Client::input_tokens,
          "Length of the unshared part of a prompt; at least 1 token.")
        .unit("tokens");
    field("output_tokens", &Client::output_tokens, "Output length.").unit("tokens");
    field("length_correlation", &Client::length_correlation,
          "Rank correlation (Spearman) of input_tokens and output_tokens, by a Gaussian copula. "
          "Both lengths keep their distributions. Lengths with few values attain less.")
        .dimensionless()
        .range(sim::between(-1, 1));
    field("max_tokens", &Client::max_tokens,
          "Maximum of an output that its requests state, at which longer outputs end; unset: none.")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens))
        .log_search(16, 4096);
    field(
        "model", &Client::model,
        "Model that its requests name: one of instances[].models, whose instances alone get them. "
        "Empty: that of its tenant, if any.");
    field("prefix_group", &Client::prefix_group,
          "Clients of one group share the first prefix_tokens tokens of their prompts; empty: no "
          "shared prefix.");
    field("prefix_tokens", &Client::prefix_tokens,
          "Length of the shared prefix, in addition to input_tokens.")
        .unit("tokens")
        .range(sim::between(0, kMaxTokens));
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;

  void validate_profile(const std::string& path, std::vector<sim::Violation>& out) const;

  /// Whether its own settings bound the number of requests.
  bool is_finite() const { return duration_s || num_requests; }
  /// The client's closed-loop users; null: its arrivals are an open process.
  const ClosedLoop* closed_loop() const { return std::get_if<ClosedLoop>(&arrivals); }
  /// No request of the client arrives at or after this time.
  sim::Time end(sim::Time workload_end) const;
};

}  // namespace spillway::workload
