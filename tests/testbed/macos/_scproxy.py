"""The proxies of macOS's settings: none."""


def _get_proxy_settings():
    return {}


def _get_proxies():
    return {}
