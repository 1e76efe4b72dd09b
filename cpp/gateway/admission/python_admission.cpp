#include "gateway/admission/python_admission.h"

#include "gateway/admission/admission.h"

namespace spillway::gateway {

std::unique_ptr<AdmissionPolicy> make(const PythonAdmission& config, const Scope& scope) {
  return config.make_policy("gateway.admission", scope);
}

}  // namespace spillway::gateway
