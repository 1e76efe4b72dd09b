#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/output_length.h"
#include "signals/needs.h"
#include "sim/error.h"
#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "sim/time.h"
#include "workload/outcome.h"

namespace spillway::gateway {

class AdmissionPolicy;
struct Scope;

/// The requests that share a limit.
enum class RateKey : std::uint8_t {
  tenant,
  slo_class,
  tenant_and_class,
  model,
  tenant_and_model,
  gateway
};
/// The times over which requests and tokens are counted.
enum class RateWindow : std::uint8_t { aligned, first_request, sliding, bucket };
/// The tokens that count.
enum class RateTokens : std::uint8_t { total, prompt, output };
/// When tokens are charged.
enum class RateCharge : std::uint8_t { reserve, at_end };
/// The Retry-After of an answer.
enum class RetryAfter : std::uint8_t { none, window, remaining };

/// The limits of one key.
struct KeyRate {
  std::optional<std::string> tenant;
  std::optional<std::string> slo_class;
  std::optional<std::string> model;
  std::optional<std::int64_t> max_requests;
  std::optional<std::int64_t> max_tokens;
  std::optional<std::int64_t> max_parallel;

  static constexpr std::string_view type_name = "KeyRate";
  static constexpr std::string_view doc =
      "The limits of one key, instead of those of the policy; an unset one is no limit.";
  static void fields(auto field) {
    const auto counts = sim::between(0, 1e12);
    field("tenant", &KeyRate::tenant, "Name of the tenant; unset: every one.");
    field("slo_class", &KeyRate::slo_class, "Name of the class; unset: every one.");
    field("model", &KeyRate::model,
          "Name of the model; empty: of the requests that name none; unset: every one.");
    field("max_requests", &KeyRate::max_requests, "Requests in a window; 0: none; unset: no limit.")
        .unit("requests")
        .range(counts)
        .log_search(1, 10000)
        .runtime();
    field("max_tokens", &KeyRate::max_tokens, "Tokens in a window; 0: none; unset: no limit.")
        .unit("tokens")
        .range(counts)
        .log_search(1000, 1e7)
        .runtime();
    field("max_parallel", &KeyRate::max_parallel,
          "Admitted and unfinished requests; 0: none; unset: no limit.")
        .unit("requests")
        .range(counts)
        .log_search(1, 1024)
        .runtime();
  }
};

/// The output that is reserved for the requests of a class.
struct ClassOutput {
  std::string slo_class = "standard";
  std::int64_t output_tokens = 256;

  static constexpr std::string_view type_name = "ClassOutput";
  static constexpr std::string_view doc = "The output that is reserved for requests of a class.";
  static void fields(auto field) {
    field("slo_class", &ClassOutput::slo_class, "Name of the class.");
    field("output_tokens", &ClassOutput::output_tokens,
          "The output that is reserved for each of its requests.")
        .unit("tokens")
        .range(sim::between(0, 1e9));
  }
};

/// Limits the requests and tokens of each key in a window, and its parallel requests.
struct RateLimit {
  std::optional<std::int64_t> max_requests = 600;
  std::optional<std::int64_t> max_tokens;
  std::optional<std::int64_t> max_parallel;
  double window_s = 60;
  RateWindow window = RateWindow::aligned;
  RateKey key = RateKey::tenant;
  RateTokens tokens = RateTokens::total;
  RateCharge charge = RateCharge::reserve;
  std::int64_t reserved_output_tokens = 256;
  std::vector<ClassOutput> reserved_of_class;
  OutputLength output_length = OutputLength::fixed;
  bool counts_refused = true;
  RetryAfter retry_after = RetryAfter::remaining;
  std::vector<KeyRate> own;

  static constexpr std::string_view kind = "rate_limit", type_name = "RateLimit";
  static constexpr std::string_view doc =
      "Rejects the requests of a key beyond a number of requests or tokens in a window, or beyond "
      "a "
      "number of parallel requests: the rate limits of gateways with API keys. Checked in this "
      "order: requests, parallel requests, tokens. Several such policies may follow each other, "
      "e.g. one per tenant and one per class; a class may stand for a model.";
  static void fields(auto field) {
    using Self = RateLimit;
    const auto counts = sim::between(0, 1e12);
    field("max_requests", &Self::max_requests,
          "Requests of a key in a window; 0: none; unset: no limit.")
        .unit("requests")
        .range(counts)
        .log_search(1, 10000)
        .runtime();
    field("max_tokens", &Self::max_tokens, "Tokens of a key in a window; 0: none; unset: no limit.")
        .unit("tokens")
        .range(counts)
        .log_search(1000, 1e7)
        .runtime();
    field("max_parallel", &Self::max_parallel,
          "Admitted and unfinished requests of a key; 0: none; unset: no limit.")
        .unit("requests")
        .range(counts)
        .log_search(1, 1024)
        .runtime();
    field("window_s", &Self::window_s,
          "Length of a window; of a bucket, the time in which it fills.")
        .unit("s")
        .range(sim::between(1e-3, sim::kLongestSpan_s))
        .log_search(1, 600);
    field("window", &Self::window,
          "aligned: windows follow each other from the start of the run, for all keys alike; "
          "first_request: a window of a key begins with its first request after the last window; "
          "sliding: the last window_s; bucket: what was used returns continuously, one after the "
          "other, and all of it in window_s.");
    field(
        "key", &Self::key,
        "The requests that share a limit: those of a tenant (an API key), of a class, of a tenant "
        "and class, that name a model, of a tenant that name a model, or all of the gateway.");
    field("tokens", &Self::tokens, "The tokens that max_tokens counts: total, prompt or output.");
    field("charge", &Self::charge,
          "reserve: prompt and reserved output are charged at admission and settled at the end; a "
          "request that would exceed the limit is refused, and one that fails gets all back. "
          "at_end: the tokens of a completed request are charged when it ends, and only a limit "
          "that is already used up refuses: requests in flight are invisible.");
    field("reserved_output_tokens", &Self::reserved_output_tokens,
          "Output that is reserved for a request whose output_length has no other.")
        .unit("tokens")
        .range(sim::between(0, 1e9))
        .log_search(1, 4096);
    field("reserved_of_class", &Self::reserved_of_class, "Classes with another reserved output.");
    field("output_length", &Self::output_length,
          "The reserved output. fixed: reserved_output_tokens, or that of the class; predicted: by "
          "length_prediction; max_tokens: what the request states, or as with fixed if it states "
          "none.");
    field("counts_refused", &Self::counts_refused,
          "Whether a request that is refused later, for its tokens, parallel requests or by "
          "another policy, has used up one of max_requests.");
    field("retry_after", &Self::retry_after,
          "The Retry-After of a refusal, which clients may obey. none; window: window_s, whatever "
          "remains of it; remaining: until the window ends or, if sliding, its oldest entry "
          "leaves, or a bucket holds what was missing; none for parallel requests.");
    field("own", &Self::own, "Keys with their own limits; the first entry that applies decides.");
  }
  void validate(const std::string& path, std::vector<sim::Violation>& out) const;
  static constexpr bool observes = true;
  signals::Needs needs() const {
    return {.output_lengths = output_length == OutputLength::predicted &&
                              charge == RateCharge::reserve && tokens != RateTokens::prompt};
  }
  static constexpr std::array reasons{
      workload::Reason{"rate_limit_requests", workload::categories::kRateLimited,
                       "the key has used up its requests of the window"},
      workload::Reason{"rate_limit_parallel", workload::categories::kRateLimited,
                       "the key has as many unfinished requests as it may have"},
      workload::Reason{"rate_limit_tokens", workload::categories::kRateLimited,
                       "the key has used up its tokens of the window, or would exceed them"}};
};

std::unique_ptr<AdmissionPolicy> make(const RateLimit& config, const Scope& scope);

}  // namespace spillway::gateway

template <>
struct spillway::sim::EnumNames<spillway::gateway::RateKey> {
  static constexpr std::array<std::string_view, 6> names{
      "tenant", "slo_class", "tenant_and_class", "model", "tenant_and_model", "gateway"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::RateWindow> {
  static constexpr std::array<std::string_view, 4> names{"aligned", "first_request", "sliding",
                                                         "bucket"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::RateTokens> {
  static constexpr std::array<std::string_view, 3> names{"total", "prompt", "output"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::RateCharge> {
  static constexpr std::array<std::string_view, 2> names{"reserve", "at_end"};
};
template <>
struct spillway::sim::EnumNames<spillway::gateway::RetryAfter> {
  static constexpr std::array<std::string_view, 3> names{"none", "window", "remaining"};
};
