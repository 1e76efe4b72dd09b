#pragma once

#include <optional>
#include <vector>

#include "cluster/clients.h"
#include "cluster/context.h"
#include "cluster/fleet.h"
#include "signals/view.h"
#include "sim/ids.h"

namespace spillway::cluster {

/// Which of the ready instances a request may be sent to: those that serve the model that it names,
/// without the one that it has lost or to which the other copy of a hedged request was sent, or the
/// instance to which alone it was submitted.
class Choices {
 public:
  Choices(const Context& context, const Clients& clients, const Fleet& fleet)
      : context_(context),
        clients_(clients),
        fleet_(fleet),
        has_models_(has_models(context.simulation)),
        has_hedges_(has_hedges(context.simulation)) {}

  /// Whether that may differ between requests when they are admitted.
  bool differ() const { return has_models_ || has_hedges_; }
  /// What admission sees: all that may be choices, or all instances if there are none. Valid until
  /// the next call, like that of `of`.
  signals::View seen(sim::RequestId request, const signals::View& view);
  /// What is seen of the choices; unset: there is none.
  std::optional<signals::View> of(sim::RequestId request, const signals::View& view);

 private:
  // But for the instance to which it was submitted.
  std::optional<signals::View> among_all(sim::RequestId request, const signals::View& view);
  std::optional<sim::InstanceId> avoided(sim::RequestId request) const;

  const Context& context_;
  const Clients& clients_;
  const Fleet& fleet_;
  bool has_models_;  // requests name models
  bool has_hedges_;
  std::vector<sim::InstanceId> choices_;  // kept for its memory
};

}  // namespace spillway::cluster
