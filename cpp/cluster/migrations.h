#pragma once

#include "cluster/clients.h"
#include "cluster/context.h"
#include "cluster/fleet.h"
#include "cluster/gateways.h"
#include "cluster/load_events.h"
#include "metrics/ledger.h"
#include "sim/ids.h"
#include "sim/time.h"
#include "workload/request_states.h"

namespace spillway::cluster {

/// The requests that go on at another instance when theirs fails (`instance/README.md`,
/// "Migration"). Like the run, it passes what an instance reports to others. It is made only if
/// requests migrate.
class Migrations final : public workload::RequestListener {
 public:
  /// `run`: notified of what instances report.
  Migrations(Context& context, workload::RequestListener& run);
  /// To be called before the run starts.
  void connect(const Clients& clients, Fleet& fleet, Gateways& gateways, LoadEvents& load_events);

  /// The request has ended. True: it goes on, and is to be routed again by an event of phase
  /// `routing`.
  [[nodiscard]] bool take(sim::RequestId id);
  /// A request that was to be routed again fails, because no other instance is ready. False: it was
  /// not.
  [[nodiscard]] bool fails(sim::RequestId id);
  /// A request is sent to an instance, maybe again.
  void routed(sim::RequestId id);
  /// A request has left an instance, and with pools all of them.
  void left(sim::RequestId id);
  metrics::MigrationCounts counts() const { return counts_; }

  // ---- of the instances --------------------------------------------------------------------

  void first_token(sim::RequestId id) override;
  void finished(sim::RequestId id) override;
  void released(sim::RequestId id) override { run_.released(id); }

 private:
  bool may_go_on(sim::RequestId id) const;
  void note_stay(sim::RequestId id);

  Context& context_;
  workload::RequestListener& run_;
  const Clients* clients_ = nullptr;
  Fleet* fleet_ = nullptr;
  Gateways* gateways_ = nullptr;
  LoadEvents* load_events_ = nullptr;
  bool has_pools_;  // which know what instance a request has lost
  sim::Time routing_latency_;
  metrics::MigrationCounts counts_;
};

}  // namespace spillway::cluster
