#include "gateway/admission/reject_all.h"

#include "gateway/admission/admission.h"

namespace spillway::gateway {

namespace {

class RejectAllPolicy final : public AdmissionPolicy {
 public:
  Verdict decide(const signals::RequestView&, const signals::View&, sim::Time,
                 sim::Draws&) override {
    return Verdict::reject();
  }
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const RejectAll&) {
  return std::make_unique<RejectAllPolicy>();
}

}  // namespace spillway::gateway
