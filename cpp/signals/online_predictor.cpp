#include "signals/online_predictor.h"

#include <algorithm>
#include <tuple>

namespace spillway::signals {

namespace {

double ms_between(sim::Time from, sim::Time to) { return sim::to_seconds(to - from) * 1000; }

}  // namespace

OnlinePredictor::OnlinePredictor(const workload::RequestTable& requests)
    : requests_(requests),
      ttft_ms_(std::vector<double>(std::tuple_size_v<TtftInputs>), {}),
      tpot_ms_(std::vector<double>(std::tuple_size_v<TpotInputs>), {}) {}

OnlinePredictor::TtftInputs OnlinePredictor::ttft_inputs(const RequestView& request,
                                                         const View& view, std::size_t i) {
  const InstanceSignal seen = view.instance(i);
  return {1, static_cast<double>(view.added_tokens(request, i)), static_cast<double>(seen.waiting),
          static_cast<double>(seen.running), seen.kv_utilization};
}

OnlinePredictor::TpotInputs OnlinePredictor::tpot_inputs(const View& view, std::size_t i) {
  const InstanceSignal seen = view.instance(i);
  return {1, static_cast<double>(seen.running), seen.kv_utilization};
}

std::optional<Prediction> OnlinePredictor::predict(const RequestView& request, const View& view,
                                                   std::size_t i) const {
  const auto knows = [](const numerics::RecursiveLeastSquares& fit) {
    return fit.samples() >= std::ssize(fit.coefficients());
  };
  if (!knows(ttft_ms_) || !knows(tpot_ms_)) return std::nullopt;
  const double ttft_ms = ttft_ms_.predict(ttft_inputs(request, view, i));
  const double tpot_ms = tpot_ms_.predict(tpot_inputs(view, i));
  const workload::SloClass& slo_class = requests_.slo_classes[request.slo_class()];
  return Prediction{.ttft_ms = ttft_ms,
                    .ttft_headroom_ms = slo_class.target_ttft_s.value_or(0) * 1000 - ttft_ms,
                    .tpot_headroom_ms = slo_class.target_tpot_s.value_or(0) * 1000 - tpot_ms};
}

void OnlinePredictor::decided(const RequestView& request, const View& view, sim::InstanceId chosen,
                              sim::Time now) {
  std::size_t at = 0;
  while (view.id(at) != chosen) ++at;
  const std::size_t row = request.id().index();
  if (sent_.size() <= row) sent_.resize(2 * row + 1);
  sent_[row] = {ttft_inputs(request, view, at), tpot_inputs(view, at), now};
}

void OnlinePredictor::first_token(sim::RequestId id, sim::Time now) {
  Sent& request = sent_[id.index()];
  request.first_token = now;
  ttft_ms_.update(request.of_ttft, ms_between(request.decided, now));
}

void OnlinePredictor::completed(sim::RequestId id, sim::Time now) {
  const Sent& request = sent_[id.index()];
  const std::int32_t tokens = requests_.target_output_tokens(id);
  if (!sim::is_set(request.first_token) || tokens < 2) return;
  tpot_ms_.update(request.of_tpot, ms_between(request.first_token, now) / (tokens - 1));
}

}  // namespace spillway::signals
