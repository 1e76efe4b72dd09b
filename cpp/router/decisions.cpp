#include "router/decisions.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace spillway::router {

void DecisionLog::add(const signals::RequestView& request, const signals::View& view,
                      std::span<const double> scores, bool by_rank, Target chosen, sim::Time now) {
  all_.clear();
  double own = 0;
  for (std::size_t i = 0; i < view.size(); ++i) {
    const signals::InstanceSignal seen = view.instance(i);
    for (std::size_t rank = 0; rank < (by_rank ? view.num_ranks(i) : 1); ++rank) {
      const double score =
          scores.empty() ? -static_cast<double>(view.effective_load(i)) : scores[all_.size()];
      if (view.id(i) == chosen.instance && (!by_rank || rank == chosen.rank)) own = score;
      all_.push_back({static_cast<std::int32_t>(view.id(i).value),
                      by_rank ? static_cast<std::int32_t>(rank) : -1, score, seen.waiting,
                      seen.running, view.in_flight(i), seen.kv_utilization, seen.measured});
    }
  }
  const std::size_t known = std::min(per_decision_, all_.size());
  std::partial_sort(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(known), all_.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return std::tuple(-a.score, a.instance, a.rank) <
                             std::tuple(-b.score, b.instance, b.rank);
                    });
  decisions_.push_back({request.row(), now, chosen, own, std::max(0.0, all_.front().score - own)});
  all_.resize(known);
  all_.resize(per_decision_,
              {.score = -std::numeric_limits<double>::infinity(), .measured = sim::kUnset});
  candidates_.insert(candidates_.end(), all_.begin(), all_.end());
}

}  // namespace spillway::router
