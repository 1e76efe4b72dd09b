#include "router/filters/context_length.h"

#include <algorithm>
#include <utility>

#include "router/filters/filter.h"

namespace spillway::router {

namespace {

class ContextLengthFilter final : public Filter {
 public:
  explicit ContextLengthFilter(ContextLength config) : config_(std::move(config)) {}

  void keep(const signals::RequestView& request, const signals::View& view, sim::Draws&,
            std::vector<bool>& kept) const override {
    const std::int64_t tokens = request.input_tokens();
    keep_only(kept, [&](std::size_t i) { return serves(view.id(i), tokens); });
  }
  bool rejects() const override { return config_.if_none == IfNone::reject; }

 private:
  bool serves(sim::InstanceId instance, std::int64_t tokens) const {
    const auto at = static_cast<std::int64_t>(instance.index());
    const auto is_of = [at](const ContextRange& range) {
      return at >= range.first_instance && at - range.first_instance < range.num_instances;
    };
    const auto contains = [tokens](const ContextRange& range) {
      return tokens >= range.min_tokens && (!range.max_tokens || tokens <= *range.max_tokens);
    };
    return std::ranges::none_of(config_.ranges, is_of) ||
           std::ranges::any_of(config_.ranges, [&](const ContextRange& range) {
             return is_of(range) && contains(range);
           });
  }

  ContextLength config_;
};

}  // namespace

void ContextRange::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (!max_tokens || *max_tokens >= min_tokens) return;
  out.push_back({sim::join_path(path, "max_tokens"), std::to_string(*max_tokens),
                 "must be >= min_tokens (" + std::to_string(min_tokens) + ")"});
}

std::unique_ptr<Filter> make(const ContextLength& config) {
  return std::make_unique<ContextLengthFilter>(config);
}

}  // namespace spillway::router
