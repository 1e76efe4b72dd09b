#include "gateway/admission/probabilistic.h"

#include <algorithm>

#include "gateway/admission/admission.h"
#include "sim/math.h"

namespace spillway::gateway {

namespace {

class ProbabilisticPolicy final : public AdmissionPolicy {
 public:
  explicit ProbabilisticPolicy(const Probabilistic& config) : config_(config) {}

  Verdict decide(const signals::RequestView& request, const signals::View& view, sim::Time,
                 sim::Draws& draws) override {
    if (request.priority() >= 0) return Verdict::admit();
    const double s = signals::saturation(config_, view);
    const double probability = std::min(1.0, config_.k * sim::pow(s, config_.power));
    return draws.uniform() < probability ? Verdict::reject() : Verdict::admit();
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<Probabilistic>(to);
  }

 private:
  Probabilistic config_;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const Probabilistic& config) {
  return std::make_unique<ProbabilisticPolicy>(config);
}

}  // namespace spillway::gateway
