#pragma once

#include <cstddef>
#include <optional>

namespace spillway::signals {

class RequestView;
class View;

/// What a request would meet on an instance.
struct Prediction {
  double ttft_ms = 0;
  double ttft_headroom_ms = 0;  ///< target of its class − prediction
  double tpot_headroom_ms = 0;
};

/// Predicts the latencies of a request.
class LatencyPredictor {
 public:
  virtual ~LatencyPredictor() = default;
  /// On the i-th candidate of the view; unset: nothing is known yet.
  virtual std::optional<Prediction> predict(const RequestView& request, const View& view,
                                            std::size_t i) const = 0;
};

}  // namespace spillway::signals
