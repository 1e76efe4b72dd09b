#include "router/scorers/no_hit_lru.h"

#include <algorithm>
#include <vector>

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class NoHitLruScorer final : public Scorer {
 public:
  explicit NoHitLruScorer(std::int64_t memory) : memory_(memory) {}

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    const std::size_t n = scores.size();
    last_used_.resize(std::max(last_used_.size(), view.id(n - 1).index() + 1), 0);
    is_cold_ = true;
    for (std::size_t i = 0; i < n && is_cold_; ++i) {
      is_cold_ = view.cached_blocks(request, i) == 0;
    }
    std::fill(scores.begin(), scores.end(), is_cold_ ? 1.0 : 0.5);
    if (!is_cold_ || n == 1) return;
    // Unused instances come first, in order of the fleet.
    order_.resize(n);
    for (std::size_t i = 0; i < n; ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      const std::uint64_t used_a = last_used_[view.id(a).index()];
      const std::uint64_t used_b = last_used_[view.id(b).index()];
      return used_a != used_b ? used_a < used_b : a < b;
    });
    for (std::size_t rank = 0; rank < n; ++rank) {
      scores[order_[rank]] = 1.0 - static_cast<double>(rank) / static_cast<double>(n - 1);
    }
  }
  void learn(const signals::RequestView&, sim::InstanceId chosen) override {
    if (!is_cold_) return;
    if (last_used_[chosen.index()] == 0) ++remembered_;
    last_used_[chosen.index()] = ++clock_;
    if (remembered_ > memory_) forget_oldest();
  }

 private:
  void forget_oldest() {
    const auto is_older = [](std::uint64_t one, std::uint64_t other) {
      return one != 0 && (other == 0 || one < other);
    };
    *std::ranges::min_element(last_used_, is_older) = 0;
    --remembered_;
  }

  std::int64_t memory_;
  std::int64_t remembered_ = 0;
  bool is_cold_ = false;
  std::uint64_t clock_ = 0;
  std::vector<std::uint64_t> last_used_;  // 0: never
  std::vector<std::size_t> order_;
};

}  // namespace

std::unique_ptr<Scorer> make(const NoHitLru& config) {
  return std::make_unique<NoHitLruScorer>(config.memory);
}

}  // namespace spillway::router
