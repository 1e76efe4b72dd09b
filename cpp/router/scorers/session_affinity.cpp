#include "router/scorers/session_affinity.h"

#include <algorithm>
#include <unordered_map>

#include "router/scorers/scorer.h"

namespace spillway::router {

namespace {

class SessionAffinityScorer final : public Scorer {
 public:
  explicit SessionAffinityScorer(const SessionAffinity& config)
      : segments_(static_cast<std::size_t>(config.session_segments)),
        ttl_(config.ttl_s ? sim::from_seconds(*config.ttl_s) : sim::kForever) {}

  void score(const signals::RequestView& request, const signals::View& view,
             std::span<double> scores) override {
    now_ = view.now();
    std::ranges::fill(scores, 0.0);
    const auto session = request.session(segments_);
    if (!session) return;
    const auto bound = bound_.find(*session);
    if (bound == bound_.end() || now_ - bound->second.last >= ttl_) return;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (view.id(i) == bound->second.instance) scores[i] = 1;
    }
  }
  void learn(const signals::RequestView& request, sim::InstanceId chosen) override {
    if (const auto session = request.session(segments_)) bound_[*session] = {chosen, now_};
  }

 private:
  struct Bound {
    sim::InstanceId instance;
    sim::Time last;  // request of the session
  };

  std::size_t segments_;
  sim::Time ttl_;
  sim::Time now_{0};  // of the last scores
  std::unordered_map<std::uint64_t, Bound> bound_;
};

}  // namespace

std::unique_ptr<Scorer> make(const SessionAffinity& config) {
  return std::make_unique<SessionAffinityScorer>(config);
}

}  // namespace spillway::router
