#include "gateway/admission/slo_gated.h"

#include <algorithm>

#include "gateway/admission/admission.h"

namespace spillway::gateway {

namespace {

class SloGatedPolicy final : public AdmissionPolicy {
 public:
  explicit SloGatedPolicy(const SloGated& config) : config_(config) {}

  Verdict decide(const signals::RequestView& request, const signals::View& view, sim::Time,
                 sim::Draws&) override {
    if (request.priority() >= config_.critical_priority) return Verdict::admit();
    const std::optional<double> threshold =
        request.priority() >= 0 ? config_.standard_threshold : config_.sheddable_threshold;
    if (!threshold) return Verdict::admit();
    const double load = load_of(view);
    // The published variants differ in this, too.
    const bool is_loaded =
        config_.signal == GateSignal::max_waiting ? load >= *threshold : load > *threshold;
    return is_loaded ? Verdict::reject() : Verdict::admit();
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<SloGated>(to);
  }

 private:
  double load_of(const signals::View& view) const {
    std::int64_t most = 0;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < view.size(); ++i) {
      const std::int64_t load = config_.signal == GateSignal::mean_effective_load
                                    ? view.effective_load(i)
                                    : view.occupancy(i).waiting;
      most = std::max(most, load);
      total += load;
    }
    switch (config_.signal) {
      case GateSignal::max_waiting:
        return static_cast<double>(most);
      case GateSignal::mean_effective_load:
        return static_cast<double>(total) / static_cast<double>(view.size());
      case GateSignal::total_waiting:
        break;
    }
    return static_cast<double>(total);
  }

  SloGated config_;
};

}  // namespace

const std::vector<std::pair<std::string_view, SloGated>>& SloGated::presets() {
  static const std::vector<std::pair<std::string_view, SloGated>> table{
      {"max_waiting", {}},
      {"mean_effective_load",
       {.signal = GateSignal::mean_effective_load,
        .standard_threshold = std::nullopt,
        .sheddable_threshold = 8}},
      {"total_waiting",
       {.signal = GateSignal::total_waiting,
        .standard_threshold = std::nullopt,
        .sheddable_threshold = 100}},
  };
  return table;
}

std::unique_ptr<AdmissionPolicy> make(const SloGated& config) {
  return std::make_unique<SloGatedPolicy>(config);
}

}  // namespace spillway::gateway
