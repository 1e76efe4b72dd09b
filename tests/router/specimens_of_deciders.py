from support.specimens import Specimen

from spillway import router

ALWAYS = Specimen(router.AlwaysRemote)
NEVER = Specimen(router.NeverRemote)
UNCACHED_TOKENS = Specimen(router.UncachedTokens, weight=2)
