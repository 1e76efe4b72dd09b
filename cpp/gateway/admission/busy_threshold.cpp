#include "gateway/admission/busy_threshold.h"

#include "gateway/admission/admission.h"

namespace spillway::gateway {

namespace {

enum Reasons : std::uint8_t { kAllBusy, kNone };

class BusyThresholdPolicy final : public AdmissionPolicy {
 public:
  explicit BusyThresholdPolicy(const BusyThreshold& config) : proportional_(config.proportional) {}

  Verdict decide(const signals::RequestView&, const signals::View& view, sim::Time,
                 sim::Draws& draws) override {
    const signals::View workers = view.entry_pool();
    if (!view.has_workers()) return Verdict::reject(kNone);
    std::size_t busy = 0;
    for (std::size_t i = 0; i < workers.size(); ++i) busy += workers.is_busy(i);
    if (busy == workers.size()) return Verdict::reject(kAllBusy);
    if (!proportional_) return Verdict::admit();
    const double share = static_cast<double>(busy) / static_cast<double>(workers.size());
    return draws.uniform() < share ? Verdict::reject(kAllBusy) : Verdict::admit();
  }

 private:
  bool proportional_;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const BusyThreshold& config) {
  return std::make_unique<BusyThresholdPolicy>(config);
}

}  // namespace spillway::gateway
