#include "gateway/admission/observed_latency.h"

#include <algorithm>

#include "sim/math.h"

namespace spillway::gateway {

namespace {

// A spread of the samples that is only rounding error, relative to their squares.
constexpr double kNoSpread = 1e-12;

}  // namespace

DecayedLine::DecayedLine(double half_life_samples) : keep_(sim::exp2(-1 / half_life_samples)) {}

void DecayedLine::add(double x, double y) {
  n_ = n_ * keep_ + 1;
  x_ = x_ * keep_ + x;
  y_ = y_ * keep_ + y;
  xx_ = xx_ * keep_ + x * x;
  xy_ = xy_ * keep_ + x * y;
}

std::optional<double> DecayedLine::at(double x) const {
  if (n_ == 0) return std::nullopt;
  const double mean_x = x_ / n_;
  const double mean_y = y_ / n_;
  const double spread = xx_ / n_ - mean_x * mean_x;
  const double common = xy_ / n_ - mean_x * mean_y;
  const bool rises = spread > kNoSpread * (xx_ / n_) && common > 0;
  const double slope = rises ? common / spread : 0;
  const double start = mean_y - slope * mean_x;
  return start >= 0 ? start + slope * x : xy_ / xx_ * x;
}

ObservedLatency::ObservedLatency(std::size_t num_instances, double half_life_samples)
    : ttft_(half_life_samples),
      tpot_(half_life_samples),
      decode_(half_life_samples),
      at_(num_instances) {}

void ObservedLatency::look(const signals::RequestView& request, const signals::View& view) {
  // The instance is not known yet.
  const signals::View prompts = view.prompt_pool();
  std::int64_t ahead = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) ahead += prompts.instance(i).prefill_tokens;
  tokens_ =
      static_cast<double>(ahead) / static_cast<double>(prompts.size()) + request.input_tokens();
}

void ObservedLatency::commit(const signals::RequestView& request) {
  ++inside_;
  memory_[request.id()] = {.tokens = tokens_};
}

void ObservedLatency::dispatched(const signals::RequestView& request, sim::Time now) {
  memory_[request.id()].dispatched = now;
}

ObservedLatency::AtInstance& ObservedLatency::brought_up(sim::InstanceId instance, sim::Time now) {
  AtInstance& at_instance = at_[instance.index()];
  at_instance.stream_time +=
      static_cast<double>(at_instance.streams) * sim::to_seconds(now - at_instance.updated);
  at_instance.updated = now;
  return at_instance;
}

void ObservedLatency::first_token(const signals::RequestView& request, sim::InstanceId instance,
                                  sim::Time now) {
  Memory& own = memory_[request.id()];
  ttft_.add(own.tokens, sim::to_seconds(now - own.dispatched));
  AtInstance& at_instance = brought_up(instance, now);
  ++at_instance.streams;
  own.first_token = now;
  own.instance = instance;
  own.stream_time = at_instance.stream_time;
  streams_.push_back(now);
}

void ObservedLatency::finished(const signals::RequestView& request, bool completed, sim::Time now) {
  --inside_;
  const Memory& own = memory_[request.id()];
  if (!sim::is_set(own.first_token)) return;
  AtInstance& at_instance = brought_up(own.instance, now);
  --at_instance.streams;
  streams_.erase(std::lower_bound(streams_.begin(), streams_.end(), own.first_token));
  const double span_s = sim::to_seconds(now - own.first_token);
  if (!completed) return;
  decode_.add(0, span_s);
  const std::int32_t gaps = request.answered_tokens() - 1;
  if (gaps > 0 && span_s > 0) {
    tpot_.add((at_instance.stream_time - own.stream_time) / span_s, span_s / gaps);
  }
}

}  // namespace spillway::gateway
