#include "instance/latency/step_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "instance/latency/latency.h"
#include "sim/value.h"

namespace spillway::instance {

namespace {

// A cell of an axis, and how far through it; outside of the axis below 0 or above 1.
struct Place {
  std::size_t cell;
  double share;
};

// The axis ascends. One of a single value has one cell without an extent.
Place place_on(const std::vector<double>& axis, double at) {
  if (axis.size() == 1) return {0, 0};
  const auto above = std::upper_bound(axis.begin() + 1, axis.end() - 1, at);
  const auto cell = static_cast<std::size_t>(above - axis.begin()) - 1;
  return {cell, (at - axis[cell]) / (axis[cell + 1] - axis[cell])};
}

class StepTableModel final : public LatencyModel {
 public:
  explicit StepTableModel(StepTable config) : c_(std::move(config)) {}

  LatencyBasis basis() const override {
    return c_.context_tokens.size() > 1 || c_.prefill_context_us != 0 ? LatencyBasis::context
                                                                      : LatencyBasis::batch;
  }
  double step_us(const StepLoad& load) const override {
    // The order of evaluation is part of the contract: other orders round differently.
    const auto decodes = static_cast<double>(load.decode_requests);
    const double context = load.decode_requests > 0
                               ? static_cast<double>(load.decode_context_tokens) / decodes
                               : c_.context_tokens.front();
    const Place d = place_on(c_.decode_requests, decodes);
    const Place c = place_on(c_.context_tokens, context);
    const double alone = at(d, place_on(c_.prefill_tokens, 0), c);
    double us = c_.decode_scale * alone;
    if (load.prefill_tokens > 0) {
      const auto tokens = static_cast<double>(load.prefill_tokens);
      us = us + c_.prefill_scale * (at(d, place_on(c_.prefill_tokens, tokens), c) - alone);
    }
    if (c_.prefill_context_us != 0) {
      const std::int64_t pairs = (load.prefill_attention - load.prefill_squares) / 2;
      us = us + c_.prefill_context_us * static_cast<double>(pairs);
    }
    return std::max(0.0, us);
  }
  double entry_us(std::int64_t input_tokens) const override {
    return c_.alpha0_us + c_.alpha_input_us * static_cast<double>(input_tokens);
  }
  double output_us() const override { return c_.alpha_output_us; }

 private:
  double at(Place d, Place n, Place c) const {
    const double low = over_prefill(d.cell, n, c);
    return d.share == 0 ? low : low + d.share * (over_prefill(d.cell + 1, n, c) - low);
  }
  double over_prefill(std::size_t decodes, Place n, Place c) const {
    const double low = over_context(decodes, n.cell, c);
    return n.share == 0 ? low : low + n.share * (over_context(decodes, n.cell + 1, c) - low);
  }
  double over_context(std::size_t decodes, std::size_t tokens, Place c) const {
    const std::size_t row =
        (decodes * c_.prefill_tokens.size() + tokens) * c_.context_tokens.size();
    const double low = c_.step_us[row + c.cell];
    return c.share == 0 ? low : low + c.share * (c_.step_us[row + c.cell + 1] - low);
  }

  StepTable c_;
};

}  // namespace

void StepTable::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  for (const auto& [name, axis] : {std::pair{"decode_requests", &decode_requests},
                                   std::pair{"prefill_tokens", &prefill_tokens},
                                   std::pair{"context_tokens", &context_tokens}}) {
    if (axis->empty()) out.push_back({sim::join_path(path, name), "[]", "must not be empty"});
    for (std::size_t i = 1; i < axis->size(); ++i) {
      if ((*axis)[i] > (*axis)[i - 1]) continue;
      out.push_back({sim::index_path(sim::join_path(path, name), i), sim::to_text((*axis)[i]),
                     "must be > the value before it (" + sim::to_text((*axis)[i - 1]) + ")"});
    }
  }
  const std::size_t cells = decode_requests.size() * prefill_tokens.size() * context_tokens.size();
  if (step_us.size() == cells) return;
  out.push_back({sim::join_path(path, "step_us"), std::to_string(step_us.size()) + " durations",
                 "must have one for each of the " + std::to_string(decode_requests.size()) + " x " +
                     std::to_string(prefill_tokens.size()) + " x " +
                     std::to_string(context_tokens.size()) +
                     " combinations of decode_requests, prefill_tokens and context_tokens"});
}

std::unique_ptr<LatencyModel> make(const StepTable& config, std::uint64_t, sim::InstanceId) {
  return std::make_unique<StepTableModel>(config);
}

}  // namespace spillway::instance
