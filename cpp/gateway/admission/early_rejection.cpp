#include "gateway/admission/early_rejection.h"

#include <algorithm>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/admission/observed_latency.h"

namespace spillway::gateway {

namespace {

class EarlyRejectionPolicy final : public AdmissionPolicy {
 public:
  EarlyRejectionPolicy(const EarlyRejection& config, const Scope& scope)
      : config_(config),
        slo_classes_(scope.slo_classes.begin(), scope.slo_classes.end()),
        latency_(scope.num_instances, config.half_life_samples) {}

  Verdict decide(const signals::RequestView& request, const signals::View& view, sim::Time now,
                 sim::Draws&) override {
    latency_.look(request, view);
    // An empty system admits, so wrong estimates can recover.
    if (latency_.inside() == 0) return Verdict::admit();
    const workload::SloClass& own = slo_classes_[request.slo_class()];
    const signals::View prompts = view.prompt_pool();
    std::int64_t ahead = prompts.instance(0).prefill_tokens;
    for (std::size_t i = 1; i < prompts.size(); ++i) {
      ahead = std::min(ahead, prompts.instance(i).prefill_tokens);
    }
    const std::optional<double> ttft_s =
        latency_.ttft_s(static_cast<double>(ahead + request.input_tokens()));
    const double streams =
        static_cast<double>(streams_at_first_token(ttft_s.value_or(0), now) + 1) /
        static_cast<double>(view.stream_pool().size());
    const double load = std::max(load_of(ttft_s, own.target_ttft_s),
                                 load_of(latency_.tpot_s(streams), own.target_tpot_s));
    return load > config_.max_load ? Verdict::reject() : Verdict::admit();
  }

  void commit(const signals::RequestView& request, sim::Time) override { latency_.commit(request); }
  void dispatched(const signals::RequestView& request, sim::Time now) override {
    latency_.dispatched(request, now);
  }
  void first_token(const signals::RequestView& request, sim::InstanceId instance,
                   sim::Time now) override {
    latency_.first_token(request, instance, now);
  }
  void finished(const signals::RequestView& request, workload::Outcome outcome,
                sim::Time now) override {
    latency_.finished(request, outcome == workload::Outcome::completed, now);
  }

  void change(const Admission& to, const Scope&, sim::Time) override {
    config_ = std::get<EarlyRejection>(to);
  }

 private:
  static double load_of(const std::optional<double>& predicted_s,
                        const std::optional<double>& target_s) {
    return predicted_s && target_s ? *predicted_s / *target_s : 0;
  }

  std::int64_t streams_at_first_token(double ttft_s, sim::Time now) const {
    const std::vector<sim::Time>& streams = latency_.streams();
    if (config_.decode_load == DecodeLoad::current) {
      return static_cast<std::int64_t>(streams.size());
    }
    const std::optional<double> decode_s =
        config_.decode_s ? config_.decode_s : latency_.decode_s();
    auto lasting = streams.begin();
    if (decode_s) {
      // Streams that started by then will have ended.
      const double latest_s = sim::to_seconds(now) + ttft_s - *decode_s;
      lasting = std::partition_point(streams.begin(), streams.end(), [&](sim::Time began) {
        return sim::to_seconds(began) <= latest_s;
      });
    }
    return (streams.end() - lasting) + latency_.before_first_token();
  }

  EarlyRejection config_;
  std::vector<workload::SloClass> slo_classes_;
  ObservedLatency latency_;
};

}  // namespace

std::unique_ptr<AdmissionPolicy> make(const EarlyRejection& config, const Scope& scope) {
  return std::make_unique<EarlyRejectionPolicy>(config, scope);
}

}  // namespace spillway::gateway
