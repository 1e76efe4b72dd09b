#include "gateway/admission/gaie_legacy.h"

#include "gateway/admission/admission.h"

namespace spillway::gateway {

namespace {

class GaieLegacyPolicy final : public AdmissionPolicy {
 public:
  explicit GaieLegacyPolicy(const GaieLegacy& config) : config_(config) {}

  Verdict decide(const signals::RequestView& request, const signals::View& view, sim::Time,
                 sim::Draws&) override {
    const bool goes = request.priority() >= 0 || signals::saturation(config_, view) < 1;
    return goes ? Verdict::admit() : Verdict::reject();
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<GaieLegacy>(to);
  }

 private:
  GaieLegacy config_;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const GaieLegacy& config) {
  return std::make_unique<GaieLegacyPolicy>(config);
}

}  // namespace spillway::gateway
