"""Records for others to read: what names a machine or its user is replaced, raw logs are left out (docs/publishing.md)."""

from rlmbench.publish.records import Published, publish, publish_campaign
from rlmbench.publish.scrub import Scrubber, absolute_paths

__all__ = ["Published", "Scrubber", "absolute_paths", "publish", "publish_campaign"]
