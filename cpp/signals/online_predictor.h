#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "numerics/recursive_least_squares.h"
#include "signals/latency_predictor.h"
#include "signals/view.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_table.h"

namespace spillway::signals {

/// Predictions by two linear regressions that learn from each request that the gateway has sent:
/// the time to the first token over the uncached prompt tokens, the queue, the batch and the KV use
/// of the instance, the time per output token over its batch and KV use (after the description of
/// llm-d's latency predictor, which runs beside the router).
class OnlinePredictor final : public LatencyPredictor {
 public:
  explicit OnlinePredictor(const workload::RequestTable& requests);

  std::optional<Prediction> predict(const RequestView& request, const View& view,
                                    std::size_t i) const override;

  /// The request goes to the instance.
  void decided(const RequestView& request, const View& view, sim::InstanceId chosen, sim::Time now);
  void first_token(sim::RequestId id, sim::Time now);
  void completed(sim::RequestId id, sim::Time now);

 private:
  using TtftInputs = std::array<double, 5>;
  using TpotInputs = std::array<double, 3>;
  struct Sent {
    TtftInputs of_ttft{};
    TpotInputs of_tpot{};
    sim::Time decided{0};
    sim::Time first_token = sim::kUnset;
  };
  static TtftInputs ttft_inputs(const RequestView& request, const View& view, std::size_t i);
  static TpotInputs tpot_inputs(const View& view, std::size_t i);

  const workload::RequestTable& requests_;
  numerics::RecursiveLeastSquares ttft_ms_;
  numerics::RecursiveLeastSquares tpot_ms_;
  std::vector<Sent> sent_;  // by request
};

}  // namespace spillway::signals
