#include "cluster/choices.h"

namespace spillway::cluster {

using sim::InstanceId;
using sim::RequestId;

signals::View Choices::seen(RequestId request, const signals::View& view) {
  return among_all(request, view).value_or(view);
}

std::optional<signals::View> Choices::of(RequestId request, const signals::View& view) {
  const auto only = clients_.submissions().instance_of(request);
  if (!only) return among_all(request, view);
  const InstanceId instance{static_cast<std::size_t>(*only)};
  const bool is_choice =
      fleet_.is_ready(instance) && fleet_.serves(context_.requests.model(request), instance);
  if (!is_choice) return std::nullopt;
  choices_.assign(1, instance);
  return view.of(choices_);
}

std::optional<signals::View> Choices::among_all(RequestId request, const signals::View& view) {
  const std::uint16_t model = context_.requests.model(request);
  if (!fleet_.serves(model)) return std::nullopt;
  const auto excluded = avoided(request);
  if (!excluded) return fleet_.view_of_model(model, view);
  choices_.clear();
  for (const InstanceId other : fleet_.ready()) {
    if (other != *excluded && fleet_.serves(model, other)) choices_.push_back(other);
  }
  if (choices_.empty() || fleet_.num_ready() == 0) return std::nullopt;
  return view.of(choices_);
}

std::optional<InstanceId> Choices::avoided(RequestId request) const {
  const workload::RequestStates& states = context_.states;
  if (states.resumes && states.resumptions[request.index()].is_due) {
    return context_.instance_of(request);
  }
  return has_hedges_ ? clients_.avoided(request) : std::nullopt;
}

}  // namespace spillway::cluster
