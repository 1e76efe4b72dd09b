#include "gateway/admission/tier_shed.h"

#include "gateway/admission/admission.h"

namespace spillway::gateway {

namespace {

class TierShedPolicy final : public AdmissionPolicy {
 public:
  explicit TierShedPolicy(const TierShed& config) : config_(config) {}

  Verdict decide(const signals::RequestView& request, const signals::View& view, sim::Time,
                 sim::Draws&) override {
    if (request.priority() >= config_.min_priority) return Verdict::admit();
    for (std::size_t i = 0; i < view.size(); ++i) {
      if (view.effective_load(i) > config_.max_load) return Verdict::reject();
    }
    return Verdict::admit();
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<TierShed>(to);
  }

 private:
  TierShed config_;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const TierShed& config) {
  return std::make_unique<TierShedPolicy>(config);
}

}  // namespace spillway::gateway
