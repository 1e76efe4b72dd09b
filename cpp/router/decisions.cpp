#include "router/decisions.h"

#include <algorithm>

namespace spillway::router {

void DecisionLog::add(const signals::RequestView& request, const signals::View& view,
                      std::span<const double> scores, sim::InstanceId chosen, sim::Time now) {
  per_decision_ = std::min(per_decision_, view.size());
  all_.clear();
  for (std::size_t i = 0; i < view.size(); ++i) {
    const signals::InstanceSignal seen = view.instance(i);
    const double score = scores.empty() ? -static_cast<double>(view.effective_load(i)) : scores[i];
    all_.push_back({static_cast<std::uint32_t>(i), score, seen.waiting, seen.running,
                    view.in_flight(i), seen.kv_utilization, seen.measured});
  }
  const double own = all_[chosen.index()].score;
  const auto end = all_.begin() + static_cast<std::ptrdiff_t>(per_decision_);
  std::partial_sort(all_.begin(), end, all_.end(), [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.instance < b.instance;
  });
  decisions_.push_back(
      {request.row(), now, chosen.value, own, std::max(0.0, all_.front().score - own)});
  candidates_.insert(candidates_.end(), all_.begin(), end);
}

}  // namespace spillway::router
