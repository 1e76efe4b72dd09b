#include "router/scorers/lora_affinity.h"

#include <string>
#include <utility>
#include <vector>

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class LoraAffinityScorer final : public Scorer {
 public:
  void score(const signals::RequestView&, const signals::View& view,
             std::span<double> scores) override {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const signals::Adapters* there = view.adapters(i);
      scores[i] = there ? suitability(*there, view.adapter()) : 0;
    }
  }

 private:
  static double suitability(const signals::Adapters& there, const std::string* adapter) {
    const auto is_in = [&](const std::vector<std::string>& names) {
      return adapter && std::ranges::find(names, *adapter) != names.end();
    };
    if (is_in(there.active)) return 1;
    const std::size_t loaded = there.active.size() + there.waiting.size();
    if (std::cmp_less(loaded, there.max_active)) return 0.8;
    return is_in(there.waiting) ? 0.6 : 0;
  }
};

}  // namespace

std::unique_ptr<Scorer> make(const LoraAffinity&) { return std::make_unique<LoraAffinityScorer>(); }

}  // namespace spillway::router
