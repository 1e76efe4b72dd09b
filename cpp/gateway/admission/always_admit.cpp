#include "gateway/admission/always_admit.h"

#include "gateway/admission/admission.h"

namespace spillway::gateway {

namespace {

class AlwaysAdmitPolicy final : public AdmissionPolicy {
 public:
  Verdict decide(const signals::RequestView&, const signals::View&, sim::Time,
                 sim::Draws&) override {
    return Verdict::admit();
  }
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const AlwaysAdmit&) {
  return std::make_unique<AlwaysAdmitPolicy>();
}

}  // namespace spillway::gateway
