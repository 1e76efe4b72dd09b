#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "numerics/recursive_least_squares.h"
#include "workload/length_prediction.h"

namespace spillway::workload {

/// Predicts output lengths as `LengthPrediction` states.
class LengthPredictor {
 public:
  /// What a prediction depends on.
  struct Facts {
    std::uint32_t row = 0;  ///< names the error of the request
    std::int32_t input_tokens = 0;
    std::int32_t output_tokens = 0;  ///< the true length
    std::int32_t max_tokens = 0;     ///< 0: none
    std::size_t slo_class = 0;
    std::size_t group = 0;  ///< of its tenant and class
  };

  LengthPredictor(const LengthPrediction& config, std::size_t num_classes, std::size_t num_groups,
                  std::uint64_t seed);

  /// Whether a prediction depends on when it is made.
  bool learns() const { return config_.learns(); }
  std::int32_t predict(const Facts& request) const;
  /// The request is complete. Only for models that learn.
  void completed(const Facts& request);

 private:
  struct Mean {
    double sum = 0;
    double count = 0;
  };
  double expected(const Facts& request) const;

  LengthPrediction config_;
  std::uint64_t seed_;
  std::vector<Mean> classes_;                            // of class_mean
  std::vector<numerics::RecursiveLeastSquares> groups_;  // of learned
};

}  // namespace spillway::workload
