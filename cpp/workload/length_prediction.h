#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"
#include "workload/limits.h"

namespace spillway::workload {

/// What a prediction of an output length starts from.
enum class LengthModel : std::uint8_t { oracle, class_mean, learned };

}  // namespace spillway::workload

template <>
struct spillway::sim::EnumNames<spillway::workload::LengthModel> {
  static constexpr std::array<std::string_view, 3> names{"oracle", "class_mean", "learned"};
};

namespace spillway::workload {

/// The predicted output length of a request, which policies see instead of the true one.
struct LengthPrediction {
  LengthModel model = LengthModel::oracle;
  double factor = 1;
  double sigma = 0;
  std::int64_t prior_tokens = 256;
  double forgetting = 0.99;

  static constexpr std::string_view type_name = "LengthPrediction";
  static constexpr std::string_view doc =
      "The predicted output length of a request: what the model expects × factor × exp(sigma × a "
      "standard normal number), at least 1 token and at most the request's max_tokens. Each "
      "request has an error of its own, which its further attempts keep. By default the prediction "
      "is the true length, which no real gateway knows; a predictor beside the gateway has a "
      "relative error (e.g. Qiu et al. 2024, Fu et al. 2024). Models that learn see completed "
      "requests alone, so the first ones, and those of an overload, are the short ones.";
  static void fields(auto field) {
    using L = LengthPrediction;
    field("model", &L::model,
          "oracle: the true length; class_mean: the mean output of the completed requests of its "
          "class; learned: a linear regression on the length of the prompt over the completed "
          "requests of its tenant and class.");
    field("factor", &L::factor, "Factor on every prediction: its bias; 1: none.")
        .dimensionless()
        .range(sim::between(1e-3, 1e3))
        .log_search(0.25, 4);
    field("sigma", &L::sigma,
          "Standard deviation of the logarithm of the error of a prediction; 0: none.")
        .dimensionless()
        .range(sim::between(0, 10))
        .search(0, 2);
    field("prior_tokens", &L::prior_tokens,
          "Expected output before the first completed request (class_mean and learned).")
        .unit("tokens")
        .range(sim::between(1, kMaxTokens))
        .log_search(16, 4096);
    field("forgetting", &L::forgetting,
          "Weight of a completed request relative to the next one (learned only); 1: all count "
          "alike.")
        .dimensionless()
        .range(sim::between(0.5, 1))
        .search(0.9, 1);
  }
  bool draws() const { return sigma > 0; }
  /// Whether predictions are the true lengths.
  bool is_exact() const { return model == LengthModel::oracle && factor == 1 && sigma == 0; }
  bool learns() const { return model != LengthModel::oracle; }
};

}  // namespace spillway::workload
