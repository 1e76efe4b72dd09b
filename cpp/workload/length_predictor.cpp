#include "workload/length_predictor.h"

#include <algorithm>
#include <array>

#include "sim/math.h"
#include "sim/rng.h"
#include "workload/lengths/lengths.h"
#include "workload/limits.h"

namespace spillway::workload {

namespace {

/// The features of the regression are 1 and thousands of prompt tokens, so that both are of similar
/// size. The first coefficients count as little, and no output is an outlier: lengths have heavy
/// tails.
constexpr double kThousand = 1e-3;
constexpr double kInitialVariance = 100;
constexpr double kLargestTrace = 100;
constexpr double kNoOutlier = 1e18;

std::array<double, 2> features(const LengthPredictor::Facts& request) {
  return {1, kThousand * request.input_tokens};
}

}  // namespace

LengthPredictor::LengthPredictor(const LengthPrediction& config, std::size_t num_classes,
                                 std::size_t num_groups, std::uint64_t seed)
    : config_(config), seed_(seed) {
  if (config.model == LengthModel::class_mean) classes_.resize(num_classes);
  if (config.model != LengthModel::learned) return;
  const std::vector<double> first{static_cast<double>(config.prior_tokens), 0};
  groups_.assign(num_groups, {first,
                              {.forgetting = config.forgetting,
                               .initial_variance = kInitialVariance,
                               .largest_trace = kLargestTrace,
                               .outlier_sigmas = kNoOutlier}});
}

double LengthPredictor::expected(const Facts& request) const {
  switch (config_.model) {
    case LengthModel::oracle:
      break;
    case LengthModel::class_mean: {
      const Mean& known = classes_[request.slo_class];
      return known.count > 0 ? known.sum / known.count : static_cast<double>(config_.prior_tokens);
    }
    case LengthModel::learned:
      return groups_[request.group].predict(features(request));
  }
  return request.output_tokens;
}

std::int32_t LengthPredictor::predict(const Facts& request) const {
  double tokens = expected(request) * config_.factor;
  if (config_.sigma > 0) {
    sim::Draws draws(seed_, sim::Stream::predictions, request.row);
    tokens *= sim::exp(config_.sigma * draws.normal());
  }
  const std::int64_t most = request.max_tokens > 0 ? request.max_tokens : kMaxTokens;
  return static_cast<std::int32_t>(clamped_tokens(tokens, 1, most));
}

void LengthPredictor::completed(const Facts& request) {
  if (config_.model == LengthModel::class_mean) {
    Mean& known = classes_[request.slo_class];
    known.sum += request.output_tokens;
    ++known.count;
  } else {
    groups_[request.group].update(features(request), request.output_tokens);
  }
}

}  // namespace spillway::workload
